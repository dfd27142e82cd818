#include "comm/tcp/job_token.h"

#include <vector>

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <openssl/rand.h>

#include "base/error.h"

namespace tessera {

TcpNonce fresh_nonce() {
  TcpNonce nonce;
  const auto bytes = static_cast<int>(nonce.size());
  if (RAND_bytes(reinterpret_cast<unsigned char*>(nonce.data()), bytes) != 1) {
    throw Error("the system gives no random numbers, by which processes know each other");
  }
  return nonce;
}

TcpProof prove(std::string_view token, TcpSide side, std::span<const std::byte> challenge,
               std::span<const std::byte> hello) {
  std::vector<std::byte> text{static_cast<std::byte>(side)};
  text.insert(text.end(), challenge.begin(), challenge.end());
  text.insert(text.end(), hello.begin(), hello.end());
  TcpProof proof;
  unsigned length = 0;
  const unsigned char* const code =
      HMAC(EVP_sha256(), token.empty() ? "" : token.data(), static_cast<int>(token.size()),
           reinterpret_cast<const unsigned char*>(text.data()), text.size(),
           reinterpret_cast<unsigned char*>(proof.data()), &length);
  TESSERA_CHECK(code != nullptr && length == proof.size(), "a proof of {} bytes", length);
  return proof;
}

bool same_proof(const TcpProof& a, const TcpProof& b) {
  return CRYPTO_memcmp(a.data(), b.data(), a.size()) == 0;
}

}  // namespace tessera
