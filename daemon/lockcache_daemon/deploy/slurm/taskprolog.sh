#!/bin/bash
# TaskProlog= of slurm.conf: what it prints after `export` is set for each task. Runs as the job's user.

# shellcheck source=lockcache.conf
. "${LOCKCACHE_SLURM_CONF:-$(dirname "${BASH_SOURCE[0]}")/lockcache.conf}" || exit 0
case $LOCKCACHE_SLURM_MODE in
  job) directory=$LOCKCACHE_SLURM_ROOT/job-${SLURM_JOB_ID:-} ;;
  *) directory=$LOCKCACHE_SLURM_ROOT/user-$(id -u) ;;
esac
# What the user set counts; and without a directory of one's own there is the default.
if [[ -z ${LOCKCACHE_DIR:-} && -O $directory ]]; then
  echo "export LOCKCACHE_DIR=$directory"
fi
exit 0
