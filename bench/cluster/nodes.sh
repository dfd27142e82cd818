# Emulated nodes, for the scripts beside this file: network namespaces of this machine, each with an address
# and a link of a limited rate. They share the machine's cores and files.
#
# The nodes are the leaves of a tree. An inner namespace has a bridge for its parts and one link to the bridge
# above, so parts of one node meet over their own links and share the node's link to the others. The bridge at
# the root belongs to this machine.

# require_emulation: ends the script if this machine cannot emulate nodes. It calls die().
require_emulation() {
  [[ "$(id -u)" == 0 ]] || die "emulated nodes need root; --hosts FILE names real ones"
  local tool
  for tool in ip tc unshare; do
    command -v "$tool" >/dev/null || die "there is no $tool; install iproute2 and util-linux"
  done
}

# make_nodes COUNT:RATE...: makes them. The first argument has the number of nodes and the rate of a node's
# link, as tc understands it ("none": not limited). Each further one has the number of parts of a node (of a
# part) and the rate of a part's link. Sets cluster_run and cluster_network, which no other run has at that
# time: leaf N is the namespace $cluster_run-N with the address $cluster_network.$((N + 1)), and this machine
# is $cluster_network.254. Sets cluster_leaves to the number of leaves.
make_nodes() {
  cluster_leaves=0
  cluster_links=() # "DEPTH SPACE" of each link
  # Whoever makes the bridge of a number has its network.
  local tried number why
  for ((tried = 0; tried < 250; ++tried)); do
    number=$((($$ + tried) % 250))
    if why="$(ip link add "tessera$number" type bridge 2>&1)"; then break; fi
    [[ "$why" == *"File exists"* ]] ||
      die "this machine allows no network namespaces ($why); --hosts FILE names real nodes"
  done
  ((tried < 250)) || die "all 250 networks of emulated nodes are in use; 'ip link' shows them as tesseraN"
  cluster_run="tessera$number"
  cluster_network="10.213.$number"
  ip addr add "$cluster_network.254/24" dev "$cluster_run"
  ip link set "$cluster_run" up
  make_parts 0 "" "$cluster_run" "$@"
}

# make_parts DEPTH PARENT BRIDGE COUNT:RATE...: makes the parts of the namespace PARENT (empty: of this
# machine) on its bridge.
make_parts() {
  local depth="$1" parent="$2" bridge="$3" count="${4%%:*}" rate="${4#*:}" number space
  local of_parent=(ip) end
  [[ -z "$parent" ]] || of_parent=(ip -n "$parent")
  shift 4
  for ((number = 0; number < count; ++number)); do
    end="part$number.${cluster_run#tessera}" # the upper end of its link
    space="$cluster_run-$cluster_leaves" # a leaf
    (($# == 0)) || space="${parent:-$cluster_run}.$number"
    [[ ! -e "/run/netns/$space" ]] || ip netns del "$space" # of a run that was killed
    ip netns add "$space" ||
      die "this machine allows no network namespaces; --hosts FILE names real nodes"
    cluster_links+=("$depth $space")
    # Packets of 16 KB fit into the bursts of limit(). Larger ones would be cut there into a dozen each.
    "${of_parent[@]}" link add "$end" gso_max_size 16384 type veth \
      peer name eth0 gso_max_size 16384 netns "$space"
    "${of_parent[@]}" link set "$end" master "$bridge" up
    ip -n "$space" link set lo up
    ip -n "$space" link set eth0 up
    limit "$rate" ip netns exec "$space" tc qdisc add dev eth0
    limit "$rate" ${parent:+ip netns exec "$parent"} tc qdisc add dev "$end"
    if (($# == 0)); then
      ip -n "$space" addr add "$cluster_network.$((++cluster_leaves))/24" dev eth0
      # Others estimate the rate of a link, which no packet loss tells them here.
      ip netns exec "$space" sysctl -q -w net.ipv4.tcp_congestion_control=reno
    else
      ip -n "$space" link add hub type bridge
      ip -n "$space" link set hub up
      ip -n "$space" link set eth0 master hub
      make_parts $((depth + 1)) "$space" hub "$@"
    fi
  done
}

# limit RATE COMMAND...: limits what a link's end sends. It may catch up half a millisecond, or a packet, after a
# delay. The queue holds what all senders may have under way, so nothing is lost.
limit() {
  local rate="$1" bits burst
  shift
  [[ "$rate" != none ]] || return 0
  bits="$(numfmt --from=si "$(tr '[:lower:]' '[:upper:]' <<<"${rate%bit}")")" && [[ "$rate" == *bit ]] ||
    die "the rate of a link is '$rate', expected one such as 100mbit, or none"
  burst=$((bits / 16000))
  "$@" root tbf rate "$rate" burst "$((burst > 20000 ? burst : 20000))" limit 64mb
}

# sent_bytes: a line for each link: its depth in the tree, and the bytes that it has sent upwards since
# make_nodes().
sent_bytes() {
  local link
  for link in "${cluster_links[@]}"; do
    echo "${link% *} $(ip netns exec "${link#* }" cat /sys/class/net/eth0/statistics/tx_bytes)"
  done
}

# remove_nodes: removes them, as far as they are there.
remove_nodes() {
  local link
  [[ -n "${cluster_run-}" ]] || return 0
  for link in "${cluster_links[@]}"; do
    ip netns del "${link#* }" 2>/dev/null || true
  done
  # The kernel would remove the links of namespaces later. The next run may take their names at once.
  for link in "/sys/class/net/$cluster_run/brif/"*; do
    ip link del "${link##*/}" 2>/dev/null || true
  done
  ip link del "$cluster_run" 2>/dev/null || true
}
