#!/bin/bash
# Stands in for tc(8) where the kernel has htb, tbf, u32, mirred and ifb but
# neither sfq nor act_police, which libvirt's limits of interfaces ask for.
# The real one is /run/tc.real.
real=/run/tc.real
all=("$@")
after() {
    local i
    for ((i = 0; i < ${#all[@]}; i++)); do
        [ "${all[i]}" = "$1" ] && { echo "${all[i + 1]}"; return; }
    done
}
device=$(after dev)
case " $* " in
*" sfq "*)
    exec $real "${@:1:$(($# - 3))}" pfifo limit 64
    ;;
*" police "*)
    ip link add "i$device" type ifb 2>/dev/null
    ip link set "i$device" up || exit
    $real qdisc replace dev "i$device" root tbf rate "$(after rate)" \
        burst "$(after burst)" latency 50ms || exit
    exec $real filter add dev "$device" parent ffff: protocol all \
        u32 match u32 0 0 action mirred egress redirect dev "i$device"
    ;;
*" fw flowid "*) ;;
*" qdisc del dev "*" ingress "*)
    $real "$@"
    result=$?
    ip link del "i$device" 2>/dev/null
    exit $result
    ;;
*)
    exec $real "$@"
    ;;
esac
