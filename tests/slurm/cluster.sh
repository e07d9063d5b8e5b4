#!/bin/bash
# A Slurm cluster of this one machine, from Debian's packages, without systemd, on loopback only.
#
#   cluster.sh install       the packages (apt-get)
#   cluster.sh start FOLDER [linuxproc | pgid | cgroup]
#                            state, logs and key lie in FOLDER; prints the line that points Slurm's commands
#                            at it; the word says how Slurm finds a job's processes (cgroup: version 1)
#   cluster.sh stop FOLDER   cancels what runs and ends the daemons; FOLDER stays
set -euo pipefail

FREEZER=/sys/fs/cgroup/freezer

fail() {
    echo "cluster.sh: $*" >&2
    exit 1
}

# until_true SECONDS COMMAND...: whether COMMAND came to succeed within that time.
until_true() {
    local deadline=$((SECONDS + $1))
    shift
    until "$@" >/dev/null 2>&1; do
        [ "$SECONDS" -lt "$deadline" ] || return 1
        sleep 0.2
    done
}

free_port() {
    local port
    while port=$((20000 + RANDOM % 10000)); (: <"/dev/tcp/127.0.0.1/$port") 2>/dev/null; do :; done
    echo "$port"
}

configure() {
    local folder=$1 tracking=$2 name cores
    name=$(hostname -s)
    cores=$(nproc)
    # Two are needed for two tasks at once; on a machine of one core they take turns.
    [ "$cores" -ge 2 ] || cores=2
    cat >"$folder/slurm.conf" <<CONF
ClusterName=poslab
SlurmctldHost=$name(127.0.0.1)
SlurmctldPort=$(free_port)
SlurmdPort=$(free_port)
# Otherwise every daemon, and every srun, listens on all interfaces.
CommunicationParameters=NoCtldInAddrAny,NoInAddrAny
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
# The credential's lifetime is also how long a requeued job waits: two minutes unless told otherwise.
AuthInfo=socket=$folder/munge.socket,cred_expire=5
StateSaveLocation=$folder/state
SlurmdSpoolDir=$folder/spool
SlurmctldPidFile=$folder/slurmctld.pid
SlurmdPidFile=$folder/slurmd.pid
SlurmctldLogFile=$folder/slurmctld.log
SlurmdLogFile=$folder/slurmd.log
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
ProctrackType=proctrack/$tracking
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
MpiDefault=none
SwitchType=switch/none
MailProg=/bin/true
SchedulerParameters=batch_sched_delay=0,sched_interval=1,bf_interval=1
JobRequeue=1
KillWait=15
MinJobAge=300
# How long a command waits for a controller that is away.
MessageTimeout=5
ReturnToService=2
# Cores as configured, whatever the machine has, and devices that only look like GPUs.
SlurmdParameters=config_overrides
GresTypes=gpu
NodeName=$name NodeAddr=127.0.0.1 CPUs=$cores Gres=gpu:2 State=UNKNOWN
PartitionName=all Nodes=$name Default=YES MaxTime=INFINITE State=UP
CONF
    printf 'CgroupPlugin=cgroup/v1\nCgroupMountpoint=/sys/fs/cgroup\n' >"$folder/cgroup.conf"
    printf 'Name=gpu File=/dev/null\nName=gpu File=/dev/zero\n' >"$folder/gres.conf"
}

node_is_idle() {
    [ "$(sinfo --noheader --format=%T)" = idle ]
}

start() {
    local folder=$1 tracking=${2:-linuxproc} daemon
    [ "$(id -u)" = 0 ] || fail "the daemons must be started by root"
    for daemon in munged mungekey slurmctld slurmd sbatch; do
        command -v "$daemon" >/dev/null || fail "$daemon is missing: run $0 install"
    done
    [ "$tracking" != cgroup ] || [ -d "$FREEZER" ] || fail "this machine has no control groups of version 1"
    mkdir -p "$folder/state" "$folder/spool"
    folder=$(realpath "$folder")
    [ ! -e "$folder/slurmctld.pid" ] || fail "a cluster seems to run in $folder: run $0 stop $folder"
    chmod 700 "$folder"
    configure "$folder" "$tracking"
    export SLURM_CONF=$folder/slurm.conf
    trap "[ \$? = 0 ] || stop '$folder'" EXIT
    [ -e "$folder/munge.key" ] || mungekey --create --keyfile="$folder/munge.key"
    # --force: a socket that other users cannot reach is an error to munged, and is what is wanted here.
    munged --force --socket="$folder/munge.socket" --key-file="$folder/munge.key" \
        --pid-file="$folder/munged.pid" --log-file="$folder/munged.log" --seed-file="$folder/munge.seed" \
        </dev/null >"$folder/munged.out" 2>&1 || fail "munged did not start: see $folder/munged.out"
    slurmctld -c </dev/null >"$folder/slurmctld.out" 2>&1 \
        || fail "slurmctld did not start: see $folder/slurmctld.out"
    slurmd </dev/null >"$folder/slurmd.out" 2>&1 || fail "slurmd did not start: see $folder/slurmd.out"
    until_true 30 node_is_idle || fail "the node did not become idle: see $folder/slurmctld.log and slurmd.log"
    echo "export SLURM_CONF=$SLURM_CONF"
}

queue_is_empty() {
    [ -z "$(squeue --noheader)" ]
}

ended() {
    ! kill -0 "$1"
}

stop() {
    local folder daemon process
    folder=$(realpath "$1")
    export SLURM_CONF=$folder/slurm.conf
    [ -e "$SLURM_CONF" ] || fail "no cluster was started in $folder"
    if timeout 10 scontrol ping >/dev/null 2>&1; then
        timeout 10 scancel --user=root || true
        timeout 10 scancel --full --signal=KILL --user=root >/dev/null 2>&1 || true
        until_true 30 queue_is_empty || echo "cluster.sh: jobs are left in the queue" >&2
    fi
    for daemon in slurmd slurmctld munged; do
        process=$(cat "$folder/$daemon.pid" 2>/dev/null) || continue
        kill "$process" 2>/dev/null || true
        until_true 15 ended "$process" || kill -KILL "$process"
        rm -f "$folder/$daemon.pid"
    done
    # slurmd leaves its own behind.
    find "$FREEZER/slurm_$(hostname -s)" -depth -type d -exec rmdir {} + 2>/dev/null || true
}

case "${1:-}:$#" in
install:1)
    apt-get update
    DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends \
        munge slurm-client slurmctld slurmd
    ;;
start:2 | start:3) start "$2" "${3:-}" ;;
stop:2) stop "$2" ;;
*) fail "usage: $0 install | start FOLDER [TRACKING] | stop FOLDER" ;;
esac
