#!/bin/bash
#SBATCH --job-name=isoloss
#SBATCH --ntasks=2 --nodes=1-2 --spread-job
#SBATCH --time=1-00:00:00
#SBATCH --signal=B:USR1@120
#SBATCH --requeue --open-mode=append
# One job of isoloss with several processes, which survives killed processes, lost nodes, preemption
# and the time limit: each attempt goes on from the last checkpoint, on the nodes that it gets. Bits
# depend neither on the nodes nor on the number of processes. Copy it, and fill in the first block:
#   OUT=/shared/run sbatch job.sh isoloss run EXPERIMENT --out /shared/run --resume --set parallel.transport=mpi
# It ends with the code of isoloss if that is a result (0, 1, 4) or a mistake (2, 3, 5), with 70 after
# too many faults, and waits for you (held, with a comment) if the disk is full.
set -u

out=${OUT:?is the results folder, one for each job, on a file system that all nodes see}
command=("$@")
launcher=${LAUNCHER:-srun --mpi=pmi2}  # pmi2: MPICH; pmix: Open MPI; or mpirun.openmpi, mpirun.mpich
declare -a check+=()                   # a script that sources this one may set it, with spaces in its words
[ -z "${CHECK:-}" ] || check=($CHECK)  # isoloss lab doctor --job EXPERIMENT --out /shared/run
faults_allowed=${FAULTS_ALLOWED:-20}
end_seconds=${END_SECONDS:-120}        # a launcher may take so long to end after its processes
stall_seconds=${STALL_SECONDS:-3600}   # and the run may write nothing for so long

# An element of an array: by the job's number alone, scontrol would take all elements.
id=$SLURM_JOB_ID
[ -z "${SLURM_ARRAY_JOB_ID:-}" ] || id=${SLURM_ARRAY_JOB_ID}_$SLURM_ARRAY_TASK_ID
attempt=$((${SLURM_RESTART_COUNT:-0} + 1))
record=${STATE:-$out/.slurm-$id}
# Of each attempt its own: processes of the last one may still run on a node whose slurmd died.
export state=$record/attempt-$attempt
mkdir -p "$state"
# Elements of an array share a results folder: each has its own reasons, and journals of its own runs.
export ISOLOSS_REASON_FOLDER=$state
journals=${JOURNALS-$out/*.journal}   # "": runs have none
results=${RESULTS-$out/*.h5}          # files that finished runs leave
say() { echo "job $id, attempt $attempt: $*" >&2; }

# Slurm has ended this attempt itself (scancel, a lost node), or has begun the next one: no more of it.
ended() {
  local job
  job=$(scontrol --oneliner show job "$id") || return 1
  [[ $job != *" JobState=RUNNING "*" Restarts=$((attempt - 1)) "* ]]
}

# again requeue|requeuehold KEY=VALUE…: Slurm ends this script and starts it anew, with the job changed.
again() {
  local how=$1 tries
  shift
  trap '' TERM # requeueing sends it here and to scontrol, but a job can be changed only after it
  for ((tries = 0; tries < 60; ++tries)); do
    if ended; then say "Slurm has ended this attempt."; exit 143; fi
    scontrol "$how" "$id" && break
    sleep 5 # slurmctld may be restarting
  done
  [ "$tries" -lt 60 ] || say "Slurm did not start it again for 5 minutes. Submitting it again goes on."
  [ $# -eq 0 ] || scontrol update JobId="$id" "$@"
  exit 143
}

# avoid NODE…: the next attempt goes elsewhere. If too few nodes were left, only these are avoided.
avoid() {
  touch "$record/avoided"
  printf '%s\n' "$@" | sort -u >"$state/new"
  sort -u "$state/new" "$record/avoided" >"$state/all"
  sinfo --noheader --Node --partition="$SLURM_JOB_PARTITION" --states=idle,mixed,allocated,completing --format=%N |
    grep -qvxFf "$state/all" || cp "$state/new" "$state/all"
  mv "$state/all" "$record/avoided"
  say "the next attempt avoids $(paste -sd, "$record/avoided")."
  echo "ExcNodeList=$(paste -sd, "$record/avoided")"
}

# fault TEXT [NODE…]: starts again, unless it happened too often.
fault() {
  say "$1"
  shift
  echo >>"$record/faults"
  if [ "$(wc -l <"$record/faults")" -gt "$faults_allowed" ]; then
    say "this was fault $((faults_allowed + 1)), so it is given up. Submitting it again goes on."
    exit 70 # not 75: sites may requeue that (RequeueExit)
  fi
  local change=()
  [ $# -eq 0 ] || change=("$(avoid "$@")")
  again requeue "${change[@]}"
}

# Another attempt would meet the same disk.
hold_for_space() {
  say "the disk of $out is full: free some of it, then: scontrol release $id"
  again requeuehold Comment="the disk of $out is full: free some of it, then: scontrol release $id"
}

# Soon the time is over: one process that is told so tells the others, and they write a checkpoint.
trap '[ ! -s "$state/pid.0" ] && again requeue || kill -TERM "$(<"$state/pid.0")" || again requeue' USR1

# Those have the run's lock, and end by their own deadline.
for journal in $journals; do
  lock=${journal%/*}/.$(basename "$journal" .journal).lock
  [ ! -e "$lock" ] || flock --wait 300 "$lock" true || fault "$lock: a process of an earlier attempt still works on it."
done

# The sums of processes add up to the same bits if there are 1, 2, 4, 8 … of them.
processes=1
while ((2 * processes <= SLURM_NTASKS)); do processes=$((2 * processes)); done
case $launcher in
  srun*) start=($launcher --input=none --ntasks="$processes") ;;
  *) start=($launcher -n "$processes") ;;
esac
# Before the first step the nodes examine themselves and each other, as the job will be started. One node
# alone has nobody to ask, so that once an hour is enough for all jobs that it gets from here.
healthy=$record/../healthy.$SLURMD_NODENAME${SLURM_JOB_GPUS:+.gpu$SLURM_JOB_GPUS}
if [ ${#check[@]} -gt 0 ] && { [ "$processes" -gt 1 ] || [ -z "$(find "$healthy" -mmin -60 2>/dev/null)" ]; }; then
  timeout --kill-after=10 180 "${start[@]}" "${check[@]}" --sick-file "$state/sick" </dev/null
  examined=$?
  mapfile -t sick < <(cut -f1 "$state/sick" 2>/dev/null | sort -u)
  if [ ${#sick[@]} -gt 0 ] && ! cut -f2 "$state/sick" | grep -qv 'are free, but the results need'; then
    hold_for_space # all nodes have the same disk
  fi
  [ ${#sick[@]} -eq 0 ] || fault "sick: ${sick[*]} ($(cut -f2 "$state/sick" | paste -sd' '))" "${sick[@]}"
  case $examined in
    0) : >"$healthy" ;;
    2 | 3 | 5) exit "$examined" ;; # a mistake, which it has told
    *) fault "the health check ended with $examined and named no node." ;;
  esac
fi
say "$processes processes on $SLURM_JOB_NODELIST."

# Launchers make of exit codes what they like, so each process leaves its own. Slurm signals all
# processes of a step: this shell outlives that, to write how the program ended.
process='trap : TERM
rank=${PMIX_RANK:-${PMI_RANK:-${SLURM_PROCID:-0}}}
echo "$SLURMD_NODENAME" >"$state/host.$rank"
"$@" & pid=$!
echo $pid >"$state/pid.$rank"
while true; do wait $pid; code=$?; kill -0 $pid 2>/dev/null || break; done
echo $code >"$state/code.$rank"
exit $code'

[[ $launcher != srun* ]] || start+=(--kill-on-bad-exit=1) # or the others would wait for their deadline
progress() { stat --format='%n %s' $journals $results 2>/dev/null | cksum; }
begun=$(progress)
"${start[@]}" bash -c "$process" process "${command[@]}" &
launch=$!

# A launcher that hangs: processes have ended and nothing is written any more, or nothing for very long.
quiet() { ! find "$state" $journals -newermt "-$1 seconds" 2>/dev/null | grep -q .; }
some_ended() { compgen -G "$state/code.*" || compgen -G "$state/abort-process*.txt"; } >/dev/null
beat=0
while kill -0 "$launch" 2>/dev/null; do
  sleep 2 & wait $! # USR1 ends the wait, but would have to wait for a sleep
  ((++beat % 5 == 0)) || continue # a shared disk has other work
  if { some_ended && quiet "$end_seconds"; } || { [ -n "$journals" ] && quiet "$stall_seconds"; }; then
    say "the launcher hangs, so it is killed with its processes."
    # Each of its steps: with the job's number, scancel would end the job for good.
    squeue --noheader --steps --job="$id" --format=%i | grep '\.[0-9]*$' | xargs --no-run-if-empty scancel
    kill -KILL "$launch"
    break
  fi
done
wait "$launch"
code=$?

codes=$(cat "$state"/code.* 2>/dev/null)
first=$(cat "$state/code.0" 2>/dev/null)
case $first in 0 | 1 | 4) rm -r "$record"; exit "$first" ;; esac
if ended; then say "Slurm has ended this attempt."; exit 143; fi
if ! head --bytes=4M /dev/zero 2>/dev/null >"$state/space"; then
  rm -f "$state/space"
  hold_for_space
fi
rm -f "$state/space"
for mistake in 2 3 5 126 127; do # the last two: there is no such program
  if grep -qx $mistake <<<"$codes"; then say "isoloss ended with $mistake (above)."; exit $mistake; fi
done
if grep -qx 130 <<<"$codes"; then
  # Runs without checkpoints that take longer than the time limit would be begun for ever.
  [ "$(progress)" != "$begun" ] || fault "interrupted, and nothing had become of this attempt."
  say "interrupted; it goes on."
  again requeue
fi

# Nodes of processes that a signal killed, or that others waited for in vain. Signals 6 (a peer aborts),
# 14 (a deadline for the launcher) and 15 are no sign of a sick node.
mapfile -t lost < <({
  grep -lxE '1(29|3[1-35-9]|4[014-9]|5[0-9])' "$state"/code.* | sed 's/.*code\.//'
  grep -hoP 'for process \K[0-9]+' "$state"/abort-process*.txt
} 2>/dev/null | sort -u | while read -r rank; do cat "$state/host.$rank"; done | sort -u)
fault "the launcher ended with $code, the processes with: ${codes//$'\n'/ }. Lost on: ${lost[*]:-?}." "${lost[@]}"
