#include <cstdlib>
#include <string>

#include "base/error.h"
#include "base/log.h"
#include "comm/launch.h"
#include "comm/mpi/join_by_mpi.h"
#include "comm/processes.h"
#include "comm/tcp/first_process.h"
#include "comm/tcp/other_process.h"
#include "comm/tcp/tcp_address.h"

namespace tessera {
namespace {

/// Makes NCCL use the network by which the processes have met, unless the user names another one.
/// NCCL reads the variable when first used. setenv() is safe: no thread reads the environment now.
void tell_nccl(const std::string& network) {
  if (network.empty()) return;
  // "=" asks for this name alone. Otherwise "eth1" would also stand for "eth10".
  ::setenv("NCCL_SOCKET_IFNAME", ("=" + network).c_str(), /*overwrite=*/0);
}

/// Joins the processes of a launch with an address, at which the first rank listens for the others.
std::unique_ptr<Processes> join_by_tcp(const Launch& launch, std::chrono::milliseconds patience) {
  const TcpAddress address = parse_tcp_address(kAddressVariable, *launch.address);
  if (!launch.token && !is_loopback(address)) {
    throw Error(
        "{} is not set. Other machines reach {}, so the processes of a run must prove that they "
        "belong to it: set it to the same secret for all of them, such as {} gives",
        kTokenVariable, address.text(), kTokenCommand);
  }
  if (!launch.token && launch.rank == 0) {
    Logger().warn(
        "{} is not set: whoever has an account on this machine may take the place of one of the "
        "processes",
        kTokenVariable);
  }
  const std::string token = launch.token.value_or("");
  const auto joined = [](auto process) -> std::unique_ptr<Processes> {
    tell_nccl(process->network());
    return process;
  };
  if (launch.rank == 0) {
    return joined(
        std::make_unique<FirstProcess>(address, launch.processes, own_host(), token, patience));
  }
  return joined(std::make_unique<OtherProcess>(address, launch.processes, launch.rank, own_host(),
                                               token, patience));
}

}  // namespace

std::unique_ptr<Processes> join_processes(std::chrono::milliseconds patience) {
  const std::optional<Launch> launch = find_launch();
  if (!launch) return nullptr;
  return launch->address ? join_by_tcp(*launch, patience) : join_by_mpi(*launch, patience);
}

}  // namespace tessera
