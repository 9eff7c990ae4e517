# shellcheck shell=bash disable=SC2034 # what is set here is used by those who read this
# What prolog.sh and epilog.sh share. Never ends a script with an error: Slurm drains a node whose prolog or epilog fails,
# and no cache is worth a node.

set -u -o pipefail
umask 077

say() { echo "lockcache: $*" >&2; }

# Whatever goes wrong is said, and is no reason not to run the job.
give_up() {
  say "$*; the job goes on without"
  exit 0
}

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd) || give_up "cannot tell where it is installed"
# shellcheck source=lockcache.conf
. "${LOCKCACHE_SLURM_CONF:-$here/lockcache.conf}" || give_up "cannot read its settings"

job=${SLURM_JOB_ID:-}
uid=${SLURM_JOB_UID:-}
gid=${SLURM_JOB_GID:-$(id -g "$uid" 2>/dev/null)}
[[ $job =~ ^[0-9]+$ && $uid =~ ^[0-9]+$ && $gid =~ ^[0-9]+$ ]] ||
  give_up "SLURM_JOB_ID, SLURM_JOB_UID or SLURM_JOB_GID is missing: '$job', '$uid', '$gid'"

root=$LOCKCACHE_SLURM_ROOT
pids=$root/.pids # of root: what is in it decides whom we send a signal
case $LOCKCACHE_SLURM_MODE in
  job) directory=$root/job-$job ;;
  node) directory=$root/user-$uid ;;
  *) give_up "LOCKCACHE_SLURM_MODE is '$LOCKCACHE_SLURM_MODE'; accepted: job, node" ;;
esac
read -r -a options <<<"$LOCKCACHE_SLURM_OPTIONS"

# Run something as the job's user, in place of this process.
exec_as_user() {
  if [[ $uid == "$(id -u)" ]]; then
    exec "$@"
  fi
  exec setpriv --reuid="$uid" --regid="$gid" --clear-groups --no-new-privs -- "$@"
}
