#pragma once

#include <string_view>
#include <vector>

#include "data/sentencepiece/model.h"
#include "data/sentencepiece/stretch_encoder.h"

namespace tessera {

/// Returns the length of the longest stretch that is held back to be encoded at once. It is far
/// longer than the text that decides a token.
size_t longest_stretch(const SentencePieceModel& model);

/// Returns the tokens of the beginning of `stretch`: half of it or more. `stretch` is as long as
/// longest_stretch() allows, and no word ends in it.
///
/// The reasoning: with both algorithms (unigram and byte-pair encoding), the tokens up to the end
/// of any token are those of the text up to there alone. Take an offset near the end of the
/// stretch. Whatever follows, a token ends at this offset or spans it. So the tokens of the whole
/// text begin with those of the text up to this offset, or up to the begin of a piece that spans
/// it. There are few such texts, and the tokens that all of them begin with are certain. Sometimes
/// they have too little in common. For example, in a character repeated over and over, a unigram
/// model has many equally probable ways, and the last character decides between them. The stretch
/// is then cut without regard to what follows. The same is done when the pieces are too long or the
/// texts too many to compare, and with other algorithms unless there is only one such text.
std::vector<StretchEncoder::Token> first_tokens(std::string_view stretch,
                                                const SentencePieceModel& model,
                                                StretchEncoder& encoder);

}  // namespace tessera
