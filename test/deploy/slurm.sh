#!/usr/bin/env bash
# Runs COMMAND as on the login host of a Slurm with two hosts, node1 and node2, that lives as long as COMMAND does: in process, mount
# and network namespaces of its own, with this machine's files. Afterwards nothing of the name of PD_ROUTER may run any more.
# usage: slurm.sh ROOT WORK COMMAND...     ROOT: Debian's packages of Slurm, unpacked
set -uo pipefail
if [ -z "${INSIDE:-}" ]; then
  INSIDE=1 exec unshare --pid --fork --kill-child --mount --mount-proc --net --uts "$0" "$@"
fi
slurm=$1 work=$2
shift 2
mkdir -p "$work"
cd "$work" || exit 2
plugins=$(echo "$slurm"/usr/lib/*/slurm-wlm)
export PATH=$slurm/usr/sbin:$slurm/usr/bin:$PATH LD_LIBRARY_PATH=$plugins:$(dirname "$plugins") SLURM_CONF=$work/slurm.conf
hostname ctl
ip link set lo up && ip addr add 10.99.0.1/32 dev lo # without an address beyond 127/8 glibc looks up nothing
printf '127.0.0.1 localhost\n127.0.1.1 node1\n127.0.1.2 node2\n127.0.1.9 ctl\n' > hosts
mount --bind hosts /etc/hosts
cat > slurm.conf <<CONF
ClusterName=test
SlurmctldHost=ctl
SlurmctldPort=17000
AuthType=auth/none
CredType=cred/none
SlurmUser=root
SlurmdUser=root
StateSaveLocation=$work/state
SlurmdSpoolDir=$work/spool.%n
SlurmctldPidFile=$work/slurmctld.pid
SlurmdPidFile=$work/slurmd.%n.pid
PluginDir=$plugins
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SwitchType=switch/none
SlurmdParameters=config_overrides
NodeName=node1 NodeHostname=ctl NodeAddr=127.0.1.1 Port=17001 CPUs=2 RealMemory=1000
NodeName=node2 NodeHostname=ctl NodeAddr=127.0.1.2 Port=17002 CPUs=2 RealMemory=1000
PartitionName=main Nodes=ALL Default=YES State=UP
CONF
mkdir -p state spool.node1 spool.node2
slurmctld-wlm -D -c > slurmctld.log 2>&1 &
for node in node1 node2; do slurmd-wlm -D -N $node -d "$slurm/usr/sbin/slurmstepd-wlm" > $node.log 2>&1 & done
for ((i = 0; i < 300; i++)); do
  [ "$(sinfo -h -t idle -o %D 2> /dev/null)" = 2 ] && break
  sleep 0.1
done
"$@"
rc=$?
for ((i = 0; i < 50; i++)); do
  pgrep -x "$(basename "$PD_ROUTER")" > /dev/null || exit $rc
  sleep 0.1
done
echo "left over:"
ps -C "$(basename "$PD_ROUTER")" -o pid,args
tail -n 5 slurmctld.log node1.log node2.log
exit 99
