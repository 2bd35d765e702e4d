#!/usr/bin/env bash
# Runs deploy/slurm/job.sbatch with CLIENT in a Slurm of two hosts, node1 and node2, with this machine's files. Says what the job said; the
# exit code is the job's. With LINGER set the job is ended by scancel once its client has a reply, and the exit code is 0. Afterwards
# nothing of the name of PD_ROUTER may run any more.
# usage: slurm.sh ROOT WORK CLIENT     ROOT: Debian's packages of Slurm, unpacked; WORK: a new folder
# Run it in namespaces of its own (test/deploy.sh): it takes host name, network, /etc/hosts and all processes for its own.
set -uo pipefail
slurm=$1 work=$2 client=$3 here=$PWD
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
id=$(cd "$here" && sbatch --parsable --output="$work/job.out" deploy/slurm/job.sbatch "$client") || exit 98
if [ -n "${LINGER:-}" ]; then
  until grep -qs DONE job.out; do sleep 0.1; done
  scancel "$id"
fi
while [ -n "$(squeue -h)" ]; do sleep 0.1; done
cat job.out
rc=0 # after scancel it is that of whichever process the signal came to first
[ -n "${LINGER:-}" ] || rc=$(scontrol show job "$id" | sed -n 's/.* ExitCode=\([0-9]*\):.*/\1/p')
for ((i = 0; i < 50; i++)); do
  pgrep -x "$(basename "$PD_ROUTER")" > /dev/null || exit $rc
  sleep 0.1
done
echo "left over:"
ps -C "$(basename "$PD_ROUTER")" -o pid,args
tail -n 5 slurmctld.log node1.log node2.log
exit 99
