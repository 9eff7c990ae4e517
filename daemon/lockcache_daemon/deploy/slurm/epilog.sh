#!/bin/bash
# Epilog= of slurm.conf: ends the job's daemon and removes its directory; or brings a directory that stays under budget.

# shellcheck source=common.sh
. "$(dirname "${BASH_SOURCE[0]}")/common.sh" || exit 0

# The daemon's pid, if the process that has it now is ours.
daemon_pid() {
  local pid
  read -r pid <"$pids/$job" && [[ $pid =~ ^[0-9]+$ ]] &&
    tr '\0' '\n' <"/proc/$pid/cmdline" | grep -qxF -- "$directory" && echo "$pid"
}

if [[ $LOCKCACHE_SLURM_MODE == node ]]; then
  (exec_as_user "$LOCKCACHE_SLURM_DAEMON" --once "${options[@]}" "$directory") </dev/null >/dev/null ||
    say "$directory could not be brought under its budget"
  exit 0
fi

for signal in TERM KILL; do
  pid=$(daemon_pid 2>/dev/null) || break
  kill -s "$signal" "$pid" 2>/dev/null
  for _ in {1..50}; do
    kill -0 "$pid" 2>/dev/null || break 2
    sleep 0.1
  done
done
rm -f -- "$pids/$job"
rm -rf --one-file-system -- "$directory" || say "$directory could not be removed"
exit 0
