#!/bin/sh
# Tells the DCGM exporter which job has which GPU: a file per GPU, a line per job. A prolog that fails takes the node out of
# service, and no figure on a dashboard is worth that, so this one never does.
directory='@DIRECTORY@'
[ -n "${SLURM_JOB_ID:-}" ] && [ -n "${SLURM_JOB_GPUS:-}" ] || exit 0
mkdir -p "$directory" || exit 0
for gpu in $(printf '%s' "$SLURM_JOB_GPUS" | tr ',' ' '); do
    grep -qsx "$SLURM_JOB_ID" "$directory/$gpu" || printf '%s\n' "$SLURM_JOB_ID" >>"$directory/$gpu" || :
done
exit 0
