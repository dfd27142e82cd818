#include "comm/tcp/tcp_socket.h"

#include <array>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <memory>
#include <system_error>
#include <thread>
#include <utility>

#include <arpa/inet.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <ifaddrs.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/strict_json.h"

namespace tessera {
namespace {

constexpr std::chrono::milliseconds kLook{250};
constexpr std::chrono::milliseconds kTryAgain{100};

using Addresses = std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)>;

std::string reason(int error) { return std::generic_category().message(error); }

/// The numbers of a host and port, or the reason why there are none.
int look_up(const char* host, uint16_t port, int flags, Addresses& addresses) {
  addrinfo hints{};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = flags;
  addrinfo* found = nullptr;
  const int problem = ::getaddrinfo(host, std::to_string(port).c_str(), &hints, &found);
  if (problem == 0) addresses.reset(found);
  return problem;
}

/// The numbers of an address. Throws Error if its name is none.
Addresses resolve(const TcpAddress& address) {
  Addresses found(nullptr, &::freeaddrinfo);
  if (const int problem = look_up(address.host.c_str(), address.port, 0, found); problem != 0) {
    throw Error("{} is no address that this machine knows: {}", address.text(),
                ::gai_strerror(problem));
  }
  return found;
}

/// Where to listen: at the address, if it is a number. A machine's own name may stand for its
/// loopback there (127.0.1.1), so for a name it is at all of the machine's addresses.
Addresses to_listen_at(const TcpAddress& address) {
  Addresses found = resolve(address);
  Addresses number(nullptr, &::freeaddrinfo);
  if (look_up(address.host.c_str(), address.port, AI_NUMERICHOST, number) == 0) return found;
  Addresses any(nullptr, &::freeaddrinfo);
  return look_up(nullptr, address.port, AI_PASSIVE, any) == 0 ? std::move(any) : std::move(found);
}

void set_option(int descriptor, int level, int name, int value) {
  ::setsockopt(descriptor, level, name, &value, sizeof value);
}

/// Small letters go at once. A machine that is lost is found out within half a minute, also if
/// nothing is sent.
void set_options(int descriptor) {
  set_option(descriptor, IPPROTO_TCP, TCP_NODELAY, 1);
  set_option(descriptor, SOL_SOCKET, SO_KEEPALIVE, 1);
  set_option(descriptor, IPPROTO_TCP, TCP_KEEPIDLE, 15);
  set_option(descriptor, IPPROTO_TCP, TCP_KEEPINTVL, 5);
  set_option(descriptor, IPPROTO_TCP, TCP_KEEPCNT, 3);
}

bool wait_for(int descriptor, short events, std::chrono::milliseconds patience) {
  pollfd waited{.fd = descriptor, .events = events, .revents = 0};
  return ::poll(&waited, 1, static_cast<int>(patience.count())) > 0;
}

/// Connects to the first of these that answers. Returns the system's error, or 0.
int connect_to_one(const addrinfo* addresses, int& descriptor) {
  int problem = EADDRNOTAVAIL;
  for (const addrinfo* at = addresses; at != nullptr; at = at->ai_next) {
    descriptor = ::socket(at->ai_family, at->ai_socktype | SOCK_CLOEXEC, at->ai_protocol);
    if (descriptor < 0) {
      problem = errno;
      continue;
    }
    if (::connect(descriptor, at->ai_addr, at->ai_addrlen) == 0) return 0;
    problem = errno;
    ::close(descriptor);
  }
  return problem;
}

/// The bytes of an address's number.
std::string number_of(const sockaddr* address) {
  const auto bytes = [](const auto& number) {
    return std::string(reinterpret_cast<const char*>(&number), sizeof number);
  };
  if (address == nullptr) return "";
  if (address->sa_family == AF_INET) {
    return bytes(reinterpret_cast<const sockaddr_in*>(address)->sin_addr);
  }
  if (address->sa_family == AF_INET6) {
    return bytes(reinterpret_cast<const sockaddr_in6*>(address)->sin6_addr);
  }
  return "";
}

/// The network of this machine that has the address of a socket's own end.
std::string network_of(int descriptor) {
  sockaddr_storage own{};
  socklen_t length = sizeof own;
  auto* const address = reinterpret_cast<sockaddr*>(&own);
  if (::getsockname(descriptor, address, &length) != 0) return "";
  const std::string number = number_of(address);
  ifaddrs* found = nullptr;
  if (::getifaddrs(&found) != 0) return "";
  const std::unique_ptr<ifaddrs, decltype(&::freeifaddrs)> networks(found, &::freeifaddrs);
  for (const ifaddrs* at = networks.get(); at != nullptr; at = at->ifa_next) {
    if (!number.empty() && number_of(at->ifa_addr) == number) return at->ifa_name;
  }
  return "";
}

}  // namespace

std::string TcpAddress::text() const {
  const bool number = host.find(':') != std::string::npos;
  return number ? fmt::format("[{}]:{}", host, port) : fmt::format("{}:{}", host, port);
}

TcpAddress parse_tcp_address(std::string_view variable, std::string_view text) {
  const size_t colon = text.rfind(':');
  std::string_view host = text.substr(0, colon);
  const std::string_view port = colon == std::string_view::npos ? "" : text.substr(colon + 1);
  if (host.starts_with('[') && host.ends_with(']')) {
    host = host.substr(1, host.size() - 2);
  } else if (host.find(':') != std::string_view::npos) {
    host = "";  // without brackets it is not clear where the port begins
  }
  int number = 0;
  const auto [end, problem] = std::from_chars(port.begin(), port.end(), number);
  if (host.empty() || problem != std::errc() || end != port.end() || number < 1 ||
      number > UINT16_MAX) {
    throw Error(
        "{} is {}, expected the first rank's machine and a port: node0:29500, 10.0.0.1:29500 or "
        "[fd00::1]:29500",
        variable, in_quotes(text));
  }
  return {std::string(host), static_cast<uint16_t>(number)};
}

TcpSocket::TcpSocket(TcpSocket&& other) noexcept
    : descriptor_(std::exchange(other.descriptor_, -1)) {}

TcpSocket::~TcpSocket() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

TcpSocket TcpSocket::connect(const TcpAddress& address, std::chrono::milliseconds patience) {
  const auto end = std::chrono::steady_clock::now() + patience;
  const Addresses addresses = resolve(address);
  for (;;) {
    int descriptor = -1;
    const int problem = connect_to_one(addresses.get(), descriptor);
    if (problem == 0) {
      set_options(descriptor);
      return TcpSocket(descriptor);
    }
    if (std::chrono::steady_clock::now() > end) {
      throw Error("{} does not answer after {:g} s: {}", address.text(),
                  std::chrono::duration<double>(patience).count(), reason(problem));
    }
    std::this_thread::sleep_for(kTryAgain);
  }
}

void TcpSocket::send(std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t sent = ::send(descriptor_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (sent < 0 && errno == EINTR) continue;
    if (sent < 0) throw ConnectionLost("the connection is lost: {}", reason(errno));
    bytes = bytes.subspan(static_cast<size_t>(sent));
  }
}

void TcpSocket::try_send(std::span<const std::byte> bytes) {
  if (!wait_for(descriptor_, POLLOUT, std::chrono::milliseconds(0))) return;
  ::send(descriptor_, bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
}

void TcpSocket::receive(std::span<std::byte> bytes, const Look& look) {
  while (!bytes.empty()) {
    if (look && !wait_for(descriptor_, POLLIN, kLook)) {
      look();
      continue;
    }
    const ssize_t received = ::recv(descriptor_, bytes.data(), bytes.size(), 0);
    if (received < 0 && errno == EINTR) continue;
    if (received < 0) throw ConnectionLost("the connection is lost: {}", reason(errno));
    if (received == 0) throw ConnectionLost("the other side has closed the connection");
    bytes = bytes.subspan(static_cast<size_t>(received));
  }
}

void TcpSocket::shut_down() { ::shutdown(descriptor_, SHUT_RDWR); }

std::string TcpSocket::network() const { return network_of(descriptor_); }

TcpListener::TcpListener(const TcpAddress& address) {
  const Addresses addresses = to_listen_at(address);
  descriptor_ =
      ::socket(addresses->ai_family, addresses->ai_socktype | SOCK_CLOEXEC, addresses->ai_protocol);
  if (descriptor_ < 0) throw Error("cannot listen at {}: {}", address.text(), reason(errno));
  set_option(descriptor_, SOL_SOCKET, SO_REUSEADDR, 1);
  if (::bind(descriptor_, addresses->ai_addr, addresses->ai_addrlen) != 0 ||
      ::listen(descriptor_, SOMAXCONN) != 0) {
    const int problem = errno;
    ::close(descriptor_);
    throw Error(
        "cannot listen at {}: {}. The first rank listens there, so it must be an address of its "
        "machine and a port that nothing else has",
        address.text(), reason(problem));
  }
}

TcpListener::~TcpListener() { ::close(descriptor_); }

uint16_t TcpListener::port() const {
  sockaddr_storage own{};
  socklen_t length = sizeof own;
  ::getsockname(descriptor_, reinterpret_cast<sockaddr*>(&own), &length);
  return ntohs(own.ss_family == AF_INET6 ? reinterpret_cast<const sockaddr_in6&>(own).sin6_port
                                         : reinterpret_cast<const sockaddr_in&>(own).sin_port);
}

std::optional<TcpSocket> TcpListener::accept(std::chrono::milliseconds patience) {
  if (!wait_for(descriptor_, POLLIN, patience)) return std::nullopt;
  const int descriptor = ::accept4(descriptor_, nullptr, nullptr, SOCK_CLOEXEC);
  if (descriptor < 0) return std::nullopt;  // who connected is gone again
  set_options(descriptor);
  return TcpSocket(descriptor);
}

}  // namespace tessera
