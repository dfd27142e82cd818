#include "comm/tcp/tcp_listener.h"

#include <cerrno>

#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/error.h"

namespace tessera {

TcpListener::TcpListener(const TcpAddress& address) {
  // The system chooses a port that is free at the first address. Others may have it at the next.
  constexpr int kPortTries = 16;
  int problem = 0;
  for (int i = 0; descriptors_.empty() && i < (address.port == 0 ? kPortTries : 1); ++i) {
    problem = listen_at_all(address);
  }
  if (!descriptors_.empty()) return;
  throw Error(
      "cannot listen at {}: {}. The first rank listens there, so it must be an address of its "
      "machine and a port that nothing else has",
      address.text(), system_reason(problem));
}

/// Listens at all IP addresses, or at none. Returns the system's error of one of them.
int TcpListener::listen_at_all(const TcpAddress& address) {
  int problem = 0;
  for (const SystemAddress& system_address : listening_addresses(address)) {
    const int error = listen_at(system_address);
    if (error == 0) continue;
    problem = error;
    // Goes on: a name may have an IPv6 address on a machine without an IPv6 network.
    if (error != EADDRNOTAVAIL && error != EAFNOSUPPORT) {
      close_all();
      break;
    }
  }
  return problem;
}

int TcpListener::listen_at(SystemAddress address) {
  if (address.port() == 0 && !descriptors_.empty()) address.set_port(port());
  const int descriptor = ::socket(address.family(), SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (descriptor < 0) return errno;
  const int on = 1;
  ::setsockopt(descriptor, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  // Without this, a listener at all IPv6 networks takes the port of the IPv4 networks too, which
  // have a listener of their own.
  if (address.family() == AF_INET6) {
    ::setsockopt(descriptor, IPPROTO_IPV6, IPV6_V6ONLY, &on, sizeof on);
  }
  if (::bind(descriptor, address.get(), address.length) != 0 ||
      ::listen(descriptor, SOMAXCONN) != 0) {
    const int problem = errno;
    ::close(descriptor);
    return problem;
  }
  descriptors_.push_back(descriptor);
  return 0;
}

void TcpListener::close_all() {
  for (const int descriptor : descriptors_) ::close(descriptor);
  descriptors_.clear();
}

TcpListener::~TcpListener() { close_all(); }

uint16_t TcpListener::port() const {
  SystemAddress own{.length = sizeof(sockaddr_storage)};
  ::getsockname(descriptors_.front(), reinterpret_cast<sockaddr*>(&own.bytes), &own.length);
  return own.port();
}

std::optional<TcpSocket> TcpListener::accept() const {
  for (const int listening : descriptors_) {
    const int descriptor = ::accept4(listening, nullptr, nullptr, SOCK_CLOEXEC);
    if (descriptor >= 0) return TcpSocket(descriptor);
    const int problem = errno;
    if (problem == EMFILE || problem == ENFILE || problem == ENOBUFS || problem == ENOMEM) {
      throw Error(
          "cannot take one more connection of another rank: {}. Each rank has two here; raise the "
          "limit on open files (ulimit -n)",
          system_reason(problem));
    }
    // No connection waits at this address, or its other side is gone again.
  }
  return std::nullopt;
}

}  // namespace tessera
