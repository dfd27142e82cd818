#pragma once

#include <string_view>
#include <vector>

#include "data/sentencepiece/model.h"
#include "data/sentencepiece/stretch_encoder.h"

namespace tessera {

/// The longest stretch that is kept to be encoded at once: far longer than what decides a token.
size_t longest_stretch(const SentencePieceModel& model);

/// The tokens of the beginning of `stretch`, which is as long as longest_stretch() allows and has
/// no place where a word ends: half of it or more.
///
/// What they are rests on this: of both algorithms, the tokens before the end of any token are
/// those of the text up to there alone. So whatever follows, the tokens of the whole begin with
/// those of a text that ends where the piece begins that lies over a given place, or at that place.
/// There are few such texts; what all of them have in common is certain. Only where they have too
/// little in common, as in a character over and over with a unigram model, of whose many equally
/// probable ways the last character decides, is the stretch cut without regard to what follows.
std::vector<StretchEncoder::Token> first_tokens(std::string_view stretch,
                                                const SentencePieceModel& model,
                                                StretchEncoder& encoder);

}  // namespace tessera
