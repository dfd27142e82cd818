#include "calls.h"

#include <algorithm>
#include <array>

#include "base/error.h"
#include "comm/mpi/mpi_call_mpi.h"
#include "comm/reduce.h"

namespace tessera {
namespace {

/// What the calls of one size work on.
struct Operands {
  Operands(int64_t bytes, Communicator& communicator, MPI_Comm comm)
      : group(communicator),
        plain(comm),
        ranks(group.size()),
        each(static_cast<int>(std::max<int64_t>(1, bytes / (4 * ranks)))),
        whole(each * ranks),
        layout(even_pieces(whole, ranks)),
        from({whole}, DType::f32),
        to({whole}, DType::f32),
        arrived({whole}, DType::f32) {
    for (const Tensor& tensor : {from, to, arrived}) std::ranges::fill(tensor.values<float>(), 1.F);
    own = to.slice(group.position() * each, (group.position() + 1) * each);
    for (int rank = 0; rank < ranks; ++rank) {
      blocks.push_back(arrived.raw() + int64_t{4} * each * rank);
    }
  }

  /// Sends each rank its part of `from`, and sums the parts that come.
  void sum_in_order(const Tensor& result) const {
    check_mpi(MPI_Alltoall(from.raw(), each, MPI_FLOAT, arrived.raw(), each, MPI_FLOAT, plain),
              "MPI_Alltoall");
    reduce(Reduction::sum, DType::f32, blocks, 0, each, result.raw());
  }

  /// Sends to the next rank, and receives from the one before.
  void message() const {
    const int own_position = group.position();
    std::array<MPI_Request, 2> requests{};
    check_mpi(MPI_Irecv(to.raw(), whole, MPI_FLOAT, (own_position + ranks - 1) % ranks, 0, plain,
                        requests.data()),
              "MPI_Irecv");
    check_mpi(
        MPI_Isend(from.raw(), whole, MPI_FLOAT, (own_position + 1) % ranks, 0, plain, &requests[1]),
        "MPI_Isend");
    check_mpi(MPI_Waitall(2, requests.data(), MPI_STATUSES_IGNORE), "MPI_Waitall");
  }

  Communicator& group;
  MPI_Comm plain;
  int ranks;
  int each;  // elements of a rank's piece
  int whole;
  PieceLayout layout;
  Tensor from, to, arrived;
  Tensor own;                            // this rank's piece of `to`
  std::vector<const std::byte*> blocks;  // of `arrived`
};

}  // namespace

ComparedCalls compared_calls(Collective collective, int64_t bytes, Communicator& group,
                             MPI_Comm plain) {
  const auto on = std::make_shared<Operands>(bytes, group, plain);
  ComparedCalls calls{.bytes = on->to.bytes()};
  switch (collective) {
    case Collective::all_gather:
      calls.ours = [on, piece = on->from.slice(0, on->each)] {
        on->group.all_gather("bench", on->layout, piece, on->to);
      };
      calls.plain = [on] {
        check_mpi(MPI_Allgather(on->from.raw(), on->each, MPI_FLOAT, on->to.raw(), on->each,
                                MPI_FLOAT, on->plain),
                  "MPI_Allgather");
      };
      break;
    case Collective::reduce_scatter:
      calls.ours = [on] { on->group.reduce_scatter("bench", on->layout, on->from, on->own); };
      calls.plain = [on] {
        check_mpi(MPI_Reduce_scatter_block(on->from.raw(), on->own.raw(), on->each, MPI_FLOAT,
                                           MPI_SUM, on->plain),
                  "MPI_Reduce_scatter_block");
      };
      calls.alike = [on] { on->sum_in_order(on->own); };
      break;
    case Collective::all_reduce:
      calls.ours = [on] { on->group.all_reduce("bench", on->from, on->to); };
      calls.plain = [on] {
        check_mpi(
            MPI_Allreduce(on->from.raw(), on->to.raw(), on->whole, MPI_FLOAT, MPI_SUM, on->plain),
            "MPI_Allreduce");
      };
      calls.alike = [on] {
        on->sum_in_order(on->own);
        check_mpi(
            MPI_Allgather(MPI_IN_PLACE, 0, MPI_FLOAT, on->to.raw(), on->each, MPI_FLOAT, on->plain),
            "MPI_Allgather");
      };
      break;
    case Collective::all_to_all:
      calls.ours = [on] { on->group.all_to_all("bench", on->from, on->to); };
      calls.plain = [on] {
        check_mpi(MPI_Alltoall(on->from.raw(), on->each, MPI_FLOAT, on->to.raw(), on->each,
                               MPI_FLOAT, on->plain),
                  "MPI_Alltoall");
      };
      break;
    case Collective::broadcast:
      calls.ours = [on] { on->group.broadcast("bench", 0, on->to); };
      calls.plain = [on] {
        check_mpi(MPI_Bcast(on->to.raw(), on->whole, MPI_FLOAT, 0, on->plain), "MPI_Bcast");
      };
      break;
    case Collective::message:
      calls.ours = [on] {
        const int own = on->group.position();
        const Message send{(own + 1) % on->ranks, on->from};
        const Message receive{(own + on->ranks - 1) % on->ranks, on->to};
        on->group.exchange("bench", std::span(&send, 1), std::span(&receive, 1));
      };
      calls.plain = [on] { on->message(); };
      break;
    default:
      throw InternalError("a collective that is not measured");
  }
  return calls;
}

}  // namespace tessera
