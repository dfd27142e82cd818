# Emulated nodes, for the scripts beside this file: network namespaces of this machine on a bridge, each with
# an address and a link of a limited rate. They share the machine's cores and files.

# require_emulation: ends the script if this machine cannot emulate nodes. It calls die().
require_emulation() {
  [[ "$(id -u)" == 0 ]] || die "emulated nodes need root; --hosts FILE names real ones"
  local tool
  for tool in ip tc unshare; do
    command -v "$tool" >/dev/null || die "there is no $tool; install iproute2 and util-linux"
  done
}

# make_nodes COUNT RATE: makes them. Sets cluster_run and cluster_network, which no other run has at that
# time: node N is the namespace $cluster_run-N with the address $cluster_network.$((N + 1)), and this machine
# is $cluster_network.254.
make_nodes() {
  local count="$1" rate="$2" number space
  cluster_run="t$$" # a link's name has at most 15 letters
  cluster_network="10.213.$(($$ % 250))"
  ip link add "$cluster_run" type bridge ||
    die "this machine allows no network namespaces; --hosts FILE names real nodes"
  ip addr add "$cluster_network.254/24" dev "$cluster_run"
  ip link set "$cluster_run" up
  for ((number = 0; number < count; ++number)); do
    space="$cluster_run-$number"
    ip netns add "$space" ||
      die "this machine allows no network namespaces; --hosts FILE names real nodes"
    ip link add "$space" type veth peer name eth0 netns "$space"
    ip link set "$space" master "$cluster_run" up
    ip -n "$space" link set lo up
    ip -n "$space" addr add "$cluster_network.$((number + 1))/24" dev eth0
    ip -n "$space" link set eth0 up
    [[ "$rate" == none ]] ||
      ip netns exec "$space" tc qdisc add dev eth0 root tbf rate "$rate" burst 256kb latency 100ms
  done
}

# sent_bytes COUNT: the bytes that each node's link has sent since make_nodes(), a line a node.
sent_bytes() {
  local number
  for ((number = 0; number < $1; ++number)); do
    ip netns exec "$cluster_run-$number" cat /sys/class/net/eth0/statistics/tx_bytes
  done
}

# remove_nodes COUNT: removes them, as far as they are there.
remove_nodes() {
  local number
  [[ -n "${cluster_run-}" ]] || return 0
  for ((number = 0; number < $1; ++number)); do
    ip netns del "$cluster_run-$number" 2>/dev/null || true
  done
  ip link del "$cluster_run" 2>/dev/null || true
}
