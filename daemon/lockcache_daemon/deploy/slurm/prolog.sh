#!/bin/bash
# Prolog= of slurm.conf: makes the job's cache directory on this node, and starts its daemon.

# shellcheck source=common.sh
. "$(dirname "${BASH_SOURCE[0]}")/common.sh" || exit 0

mkdir -p "$root" "$pids" || give_up "cannot make $root"
[[ -O $root && ! -L $root && -O $pids && ! -L $pids ]] || give_up "$root belongs to somebody else"
chmod 0711 "$root" || give_up "cannot let others pass through $root"
if ! mkdir -m 0700 "$directory" 2>/dev/null; then
  [[ -d $directory && ! -L $directory && $(stat -c %u "$directory") == "$uid" ]] ||
    give_up "$directory cannot be made, or belongs to somebody else"
fi
chown "$uid:$gid" "$directory" || give_up "cannot give $directory to uid $uid"

if [[ $LOCKCACHE_SLURM_MODE == job ]]; then
  # Away from Slurm's own pipes: it waits for all who hold them.
  (exec_as_user setsid "$LOCKCACHE_SLURM_DAEMON" "${options[@]}" "$directory") </dev/null >/dev/null 2>&1 &
  echo $! >"$pids/$job"
  disown
fi
exit 0
