#include "comm/tcp/tcp_socket.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include <arpa/inet.h>
#include <fcntl.h>
#include <ifaddrs.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "comm/call_errors.h"

// Sends and receives do not wait (MSG_DONTWAIT). Instead poll() waits, for kLook at most, so that a
// Look is called in time.

namespace tessera {
namespace {

constexpr std::chrono::milliseconds kLook{250};  // between two calls of a Look
constexpr std::chrono::milliseconds kConnectRetryDelay{100};
constexpr std::chrono::milliseconds kConnectPatience{5000};  // for one try

void set_option(int descriptor, int level, int name, int value) {
  ::setsockopt(descriptor, level, name, &value, sizeof value);
}

/// Makes the system send small messages at once, and notice within half a minute that the other
/// machine is lost while no bytes are under way: after 15 s of silence it asks 3 times, every 5 s.
void set_options(int descriptor) {
  set_option(descriptor, IPPROTO_TCP, TCP_NODELAY, 1);
  set_option(descriptor, SOL_SOCKET, SO_KEEPALIVE, 1);
  set_option(descriptor, IPPROTO_TCP, TCP_KEEPIDLE, 15);
  set_option(descriptor, IPPROTO_TCP, TCP_KEEPINTVL, 5);
  set_option(descriptor, IPPROTO_TCP, TCP_KEEPCNT, 3);
}

/// Waits for one of the poll events. Returns false if none comes within `patience`.
bool wait_for(int descriptor, short events, std::chrono::milliseconds patience) {
  pollfd waited{.fd = descriptor, .events = events, .revents = 0};
  return ::poll(&waited, 1, static_cast<int>(patience.count())) > 0;
}

/// Returns whether both ends of a connection are this socket. That happens if nothing listens at
/// the port, and the system has chosen that very port for this end.
bool is_connected_to_itself(int descriptor) {
  sockaddr_storage own{};
  sockaddr_storage other{};
  socklen_t own_length = sizeof own;
  socklen_t other_length = sizeof other;
  return ::getsockname(descriptor, reinterpret_cast<sockaddr*>(&own), &own_length) == 0 &&
         ::getpeername(descriptor, reinterpret_cast<sockaddr*>(&other), &other_length) == 0 &&
         own_length == other_length && std::memcmp(&own, &other, own_length) == 0;
}

/// Connects to an address within `patience`. Returns the system's error, or 0.
int connect_to(const SystemAddress& address, std::chrono::milliseconds patience, int& descriptor) {
  descriptor = ::socket(address.family(), SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (descriptor < 0) return errno;
  int problem = ::connect(descriptor, address.get(), address.length) == 0 ? 0 : errno;
  if (problem == EINPROGRESS) {
    socklen_t length = sizeof problem;
    if (!wait_for(descriptor, POLLOUT, patience)) {
      problem = ETIMEDOUT;
    } else if (::getsockopt(descriptor, SOL_SOCKET, SO_ERROR, &problem, &length) != 0) {
      problem = errno;
    }
  }
  if (problem == 0 && is_connected_to_itself(descriptor)) problem = ECONNREFUSED;
  if (problem != 0) ::close(descriptor);
  return problem;
}

/// Returns the bytes of an IP address, without its port. An IPv4 address that is mapped to IPv6
/// gives the same bytes as the IPv4 address itself.
std::string address_bytes(const sockaddr* address) {
  const auto bytes = [](const auto& number) {
    return std::string(reinterpret_cast<const char*>(&number), sizeof number);
  };
  if (address == nullptr) return "";
  if (address->sa_family == AF_INET) {
    return bytes(reinterpret_cast<const sockaddr_in*>(address)->sin_addr);
  }
  if (address->sa_family == AF_INET6) {
    const in6_addr& number = reinterpret_cast<const sockaddr_in6*>(address)->sin6_addr;
    if (IN6_IS_ADDR_V4MAPPED(&number)) {
      return std::string(reinterpret_cast<const char*>(&number) + 12, 4);
    }
    return bytes(number);
  }
  return "";
}

/// Returns the network interface that has the address of the socket's own end.
std::string network_of(int descriptor) {
  sockaddr_storage own{};
  socklen_t length = sizeof own;
  auto* const address = reinterpret_cast<sockaddr*>(&own);
  if (::getsockname(descriptor, address, &length) != 0) return "";
  const std::string number = address_bytes(address);
  ifaddrs* found = nullptr;
  if (::getifaddrs(&found) != 0) return "";
  const std::unique_ptr<ifaddrs, decltype(&::freeifaddrs)> networks(found, &::freeifaddrs);
  for (const ifaddrs* at = networks.get(); at != nullptr; at = at->ifa_next) {
    if (!number.empty() && address_bytes(at->ifa_addr) == number) return at->ifa_name;
  }
  return "";
}

}  // namespace

TcpSocket::TcpSocket(int descriptor) : descriptor_(descriptor) { set_options(descriptor); }

TcpSocket::TcpSocket(TcpSocket&& other) noexcept
    : descriptor_(std::exchange(other.descriptor_, -1)) {}

TcpSocket::~TcpSocket() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

TcpSocket TcpSocket::connect(const TcpAddress& address, std::chrono::milliseconds patience) {
  const auto deadline = std::chrono::steady_clock::now() + patience;
  for (;;) {
    const auto remaining =
        std::chrono::ceil<std::chrono::milliseconds>(deadline - std::chrono::steady_clock::now());
    std::string why;
    auto socket =
        try_connect(address, std::clamp(remaining, kConnectRetryDelay, kConnectPatience), why);
    if (socket) return std::move(*socket);
    if (std::chrono::steady_clock::now() > deadline) {
      throw Error("{} does not answer {}: {}", address.text(), waited_text(patience), why);
    }
    std::this_thread::sleep_for(kConnectRetryDelay);
  }
}

std::optional<TcpSocket> TcpSocket::try_connect(const TcpAddress& address,
                                                std::chrono::milliseconds patience,
                                                std::string& why) {
  int unknown = 0;
  const std::vector<SystemAddress> addresses = look_up(address, unknown);
  if (unknown != 0) why = ::gai_strerror(unknown);
  // EAI_AGAIN: the name server does not answer now, but may do so later.
  if (unknown != 0 && unknown != EAI_AGAIN) throw_unknown(address, unknown);
  for (const SystemAddress& at : addresses) {
    int descriptor = -1;
    const int problem = connect_to(at, patience, descriptor);
    if (problem == 0) return TcpSocket(descriptor);
    why = system_reason(problem);
  }
  return std::nullopt;
}

std::string system_reason(int error) { return std::generic_category().message(error); }

void TcpSocket::watch_machine() {
  constexpr int kMilliseconds = 30'000;
  set_option(descriptor_, IPPROTO_TCP, TCP_USER_TIMEOUT, kMilliseconds);
}

void TcpSocket::send(std::span<const std::byte> bytes, const Look& look) {
  while (!bytes.empty()) {
    const ssize_t sent =
        ::send(descriptor_, bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent >= 0) {
      bytes = bytes.subspan(static_cast<size_t>(sent));
    } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
      if (!wait_for(descriptor_, POLLOUT, kLook) && look) look();
    } else if (errno != EINTR) {
      throw ConnectionLost("the connection is lost: {}", system_reason(errno));
    }
  }
}

bool TcpSocket::try_send(std::span<const std::byte> bytes) {
  if (!wait_for(descriptor_, POLLOUT, std::chrono::milliseconds(0))) return false;
  return ::send(descriptor_, bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT) ==
         std::ssize(bytes);
}

void TcpSocket::receive(std::span<std::byte> bytes, const Look& look) {
  while (!bytes.empty()) {
    const size_t received = receive_some(bytes);
    bytes = bytes.subspan(received);
    if (received > 0) continue;
    wait_for(descriptor_, POLLIN, kLook);
    if (look) look();
  }
}

size_t TcpSocket::receive_some(std::span<std::byte> bytes) {
  const ssize_t received = ::recv(descriptor_, bytes.data(), bytes.size(), MSG_DONTWAIT);
  if (received > 0) return static_cast<size_t>(received);
  if (received == 0) throw ConnectionLost("the other side has closed the connection");
  if (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR) return 0;
  throw ConnectionLost("the connection is lost: {}", system_reason(errno));
}

bool TcpSocket::is_closed() const {
  std::byte next{};
  const ssize_t received = ::recv(descriptor_, &next, 1, MSG_PEEK | MSG_DONTWAIT);
  return received == 0 || (received < 0 && errno != EAGAIN && errno != EWOULDBLOCK);
}

void TcpSocket::shut_down() { ::shutdown(descriptor_, SHUT_RDWR); }

std::string TcpSocket::network() const { return network_of(descriptor_); }

}  // namespace tessera
