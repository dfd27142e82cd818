#include "comm/tcp/tcp_address.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cstring>
#include <memory>
#include <system_error>

#include <fmt/format.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>

#include "base/error.h"
#include "base/strict_json.h"
#include "comm/launch.h"

namespace tessera {
namespace {

std::string_view first_label(std::string_view host) { return host.substr(0, host.find('.')); }

/// Returns whether a host is this machine's own name. "localhost" is not: it is every machine's.
bool is_own_name(std::string_view host) {
  const std::string own = own_host();
  const std::string_view label = first_label(own);
  return !label.empty() && label != "localhost" && label == first_label(host);
}

/// Returns the addresses that stand for all networks of this machine. The IP address itself stays
/// zero, which means all of them.
std::vector<SystemAddress> all_networks(uint16_t port) {
  SystemAddress ipv6{.length = sizeof(sockaddr_in6)};
  ipv6.bytes.ss_family = AF_INET6;
  ipv6.set_port(port);
  SystemAddress ipv4{.length = sizeof(sockaddr_in)};
  ipv4.bytes.ss_family = AF_INET;
  ipv4.set_port(port);
  return {ipv6, ipv4};
}

}  // namespace

std::string TcpAddress::text() const {
  const bool is_ipv6 = host.find(':') != std::string::npos;
  return is_ipv6 ? fmt::format("[{}]:{}", host, port) : fmt::format("{}:{}", host, port);
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

uint16_t SystemAddress::port() const {
  return ntohs(family() == AF_INET6 ? reinterpret_cast<const sockaddr_in6&>(bytes).sin6_port
                                    : reinterpret_cast<const sockaddr_in&>(bytes).sin_port);
}

void SystemAddress::set_port(uint16_t port) {
  (family() == AF_INET6 ? reinterpret_cast<sockaddr_in6&>(bytes).sin6_port
                        : reinterpret_cast<sockaddr_in&>(bytes).sin_port) = htons(port);
}

bool SystemAddress::is_loopback() const {
  if (family() == AF_INET) {
    const uint32_t number = ntohl(reinterpret_cast<const sockaddr_in&>(bytes).sin_addr.s_addr);
    return number >> 24 == 127;  // 127.0.0.0/8
  }
  const in6_addr& number = reinterpret_cast<const sockaddr_in6&>(bytes).sin6_addr;
  return family() == AF_INET6 && (IN6_IS_ADDR_LOOPBACK(&number) != 0 ||
                                  (IN6_IS_ADDR_V4MAPPED(&number) && number.s6_addr[12] == 127));
}

std::vector<SystemAddress> look_up(const TcpAddress& address, int& problem) {
  addrinfo hints{};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  problem =
      ::getaddrinfo(address.host.c_str(), std::to_string(address.port).c_str(), &hints, &found);
  std::vector<SystemAddress> result;
  if (problem != 0) return result;
  const std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)> owner(found, &::freeaddrinfo);
  for (const addrinfo* entry = found; entry != nullptr; entry = entry->ai_next) {
    SystemAddress& system_address = result.emplace_back();
    system_address.length = entry->ai_addrlen;
    std::memcpy(&system_address.bytes, entry->ai_addr, entry->ai_addrlen);
  }
  return result;
}

void throw_unknown(const TcpAddress& address, int problem) {
  throw Error("{} is no address that this machine knows: {}", address.text(),
              ::gai_strerror(problem));
}

std::vector<TcpAddress> own_addresses(uint16_t port) {
  ifaddrs* found = nullptr;
  if (::getifaddrs(&found) != 0) return {{"127.0.0.1", port}};
  const std::unique_ptr<ifaddrs, decltype(&::freeifaddrs)> owner(found, &::freeifaddrs);
  std::vector<TcpAddress> of_networks, of_loopback;
  for (const ifaddrs* at = found; at != nullptr; at = at->ifa_next) {
    if (at->ifa_addr == nullptr || (at->ifa_flags & IFF_UP) == 0) continue;
    SystemAddress address;
    if (at->ifa_addr->sa_family == AF_INET) address.length = sizeof(sockaddr_in);
    if (at->ifa_addr->sa_family == AF_INET6) address.length = sizeof(sockaddr_in6);
    if (address.length == 0) continue;
    std::memcpy(&address.bytes, at->ifa_addr, address.length);
    std::array<char, NI_MAXHOST> host{};
    if (::getnameinfo(address.get(), address.length, host.data(), host.size(), nullptr, 0,
                      NI_NUMERICHOST) != 0) {
      continue;
    }
    // An address of one link has the name of this machine's interface in it ("fe80::1%eth0").
    if (std::string_view(host.data()).find('%') != std::string_view::npos) continue;
    (address.is_loopback() ? of_loopback : of_networks).push_back({host.data(), port});
  }
  of_networks.insert(of_networks.end(), of_loopback.begin(), of_loopback.end());
  return of_networks;
}

std::vector<SystemAddress> listening_addresses(const TcpAddress& address) {
  if (address.host.empty()) return all_networks(address.port);
  int problem = 0;
  std::vector<SystemAddress> found = look_up(address, problem);
  if (problem != 0) throw_unknown(address, problem);
  const bool loopback = std::ranges::all_of(found, &SystemAddress::is_loopback);
  return loopback && is_own_name(address.host) ? all_networks(address.port) : found;
}

bool is_loopback(const TcpAddress& address) {
  int problem = 0;
  return std::ranges::all_of(look_up(address, problem), &SystemAddress::is_loopback) &&
         problem == 0 && !is_own_name(address.host);
}

}  // namespace tessera
