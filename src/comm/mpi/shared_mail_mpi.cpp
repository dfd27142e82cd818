#include "comm/mpi/shared_mail_mpi.h"

#include "comm/mpi/mpi_call_mpi.h"
#include "comm/mpi/shared_parts_mpi.h"

namespace tessera {
namespace {

constexpr int64_t kMostMailBytes = int64_t{8} << 10;    // of one message
constexpr int64_t kMostPartBytes = int64_t{256} << 10;  // of all messages of a rank

}  // namespace

SharedMail::SharedMail(int size, int position)
    : position_(position),
      max_bytes_(std::clamp<int64_t>(kMostPartBytes / (kSlots * size) / kLine * kLine, kLine,
                                     kMostMailBytes)),
      sent_(static_cast<size_t>(size)),
      received_(static_cast<size_t>(size)) {}

std::unique_ptr<SharedMail> SharedMail::make(MPI_Comm comm) {
  const int size = ranks_of(comm);
  auto mail = std::unique_ptr<SharedMail>(new SharedMail(size, position_in(comm)));
  mail->parts_ = share_parts(comm, size * mail->peer_bytes());
  return mail->parts_.empty() ? nullptr : std::move(mail);
}

}  // namespace tessera
