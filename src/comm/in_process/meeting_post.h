#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>

#include "comm/in_process/meeting.h"
#include "comm/transport.h"

namespace tessera {

/// A message that a rank has posted in a meeting. The meeting's lock guards the private members.
class MeetingPost final : public TransportPost {
 public:
  /// Creates the post of the rank at `position`, for Meeting::post().
  MeetingPost(std::shared_ptr<Meeting> meeting, size_t position, const MarkedMessage& message,
              bool sent)
      : TransportPost(message, sent), meeting_(std::move(meeting)), position_(position) {}
  ~MeetingPost() override { meeting_->withdraw(*this); }

 private:
  friend class Meeting;

  enum class State : uint8_t {
    none,      ///< not posted
    posted,    ///< the other rank has not posted the message
    matched,   ///< both ranks have posted it
    copying,   ///< one of them copies its bytes
    moved,     ///< the bytes are there
    forsaken,  ///< the other rank has withdrawn it
  };

  std::shared_ptr<Meeting> meeting_;
  size_t position_;
  State state_ = State::none;
  MeetingPost* other_ = nullptr;  // of the other rank, if matched or copying
};

}  // namespace tessera
