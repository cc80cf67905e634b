"""The shell scripts of the small containers beside the daemons."""

from __future__ import annotations

from slurm_operator.api import wellknown

# A daemon writes its log into a pipe, and this prints what comes out, so that no file ever grows. cat opens
# the pipe for writing as well, so that it does not end when a writer closes it: a daemon that writes to a
# pipe without a reader is killed by SIGPIPE.
_LOGFILE = """\
trap 'exit 0' TERM
trap 'exit 1' INT HUP
mkdir -p "$(dirname "$SOCKET")"
{closing}if ! [ -p "$SOCKET" ]; then
  rm -rf "$SOCKET"
  mkfifo -m {mode} "$SOCKET"
fi
while :; do
  cat <>"$SOCKET" &
  wait $!
  sleep 1 &
  wait $!
done
"""

# Jobs of any user run beside slurmd: they must neither read its log, nor write into it, nor put something
# else in its place. Beside slurmctld the folder is not ours to change, and there are no jobs.
LOGFILE = _LOGFILE.format(mode="660", closing='chmod o-w "$(dirname "$SOCKET")" 2>/dev/null\n')

# Where daemon and sidecar run as different users and share no group, only a pipe that is open to all works.
LOGFILE_OPEN = _LOGFILE.format(mode="777", closing="")

# The kubelet exchanges the files of a volume through links in folders that start with two dots; slurmctld
# reads the links outside of them. The first hash is taken before slurmctld starts, as sidecars come first: a
# change in between is at worst one needless reconfigure, and never lost.
RECONFIGURE = f"""\
trap 'exit 0' TERM
state() {{
  find -L {wellknown.DIR_SLURM_ETC} -path '*/..*' -prune -o -type f -print0 \\
    | sort -z | xargs -0 -r sha256sum | sha256sum
}}
known=$(state)
while :; do
  sleep 5 & wait $!
  seen=$(state)
  [ "$seen" = "$known" ] && continue
  echo "the files in {wellknown.DIR_SLURM_ETC} changed: scontrol reconfigure"
  until scontrol reconfigure; do
    sleep 2 & wait $!
  done
  known=$seen
done
"""

# sackd wants its files owned by the Slurm user and private, which a projected volume cannot give them.
INITCONF = f"""\
set -e
cd {wellknown.DIR_SLURM_CONFIG}
for file in *.conf *.key *.jwks; do
  [ -e "$file" ] || continue
  mode=644
  case "$file" in
    {wellknown.FILE_SLURMDBD_CONF}|*.key|*.jwks) mode=600 ;;
  esac
  cp -L "$file" {wellknown.DIR_SLURM_ETC_INIT}/
  chown {wellknown.SLURM_UID}:{wellknown.SLURM_GID} {wellknown.DIR_SLURM_ETC_INIT}/"$file"
  chmod "$mode" {wellknown.DIR_SLURM_ETC_INIT}/"$file"
done
ls -l {wellknown.DIR_SLURM_ETC_INIT}
"""
