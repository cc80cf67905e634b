#!/bin/sh
# Takes an ended job off the files that dcgm-prolog.sh wrote. Like that one it never fails.
directory='@DIRECTORY@'
[ -n "${SLURM_JOB_ID:-}" ] || exit 0
for file in "$directory"/*; do
    grep -qsx "$SLURM_JOB_ID" "$file" || continue
    rest=$(grep -vx "$SLURM_JOB_ID" "$file")
    if [ -n "$rest" ]; then
        printf '%s\n' "$rest" >"$file" || :
    else
        rm -f "$file"
    fi
done
exit 0
