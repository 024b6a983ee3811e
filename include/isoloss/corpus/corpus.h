// Holds the text that is trained on: tokens, their origin and their split.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "isoloss/corpus/source.h"

namespace isoloss::corpus {

class Tokens;

/// Tokens have the narrowest type that their source offers.
using TokenVector = std::variant<std::vector<uint8_t>, std::vector<uint16_t>,
                                 std::vector<uint32_t>>;

inline constexpr size_t kMaxBigramVocabulary = 1024;
/// Text is held in memory; small models see far less of it.
inline constexpr size_t kMaxBytes = size_t{4} << 30;
/// This is enough for a ratio and takes less than a second.
inline constexpr size_t kMaxDeflated = size_t{4} << 20;

/// A share has the positions [first, first + count) of a corpus.
struct Share {
  size_t first = 0;
  size_t count = 0;
};

/// Holds immutable tokens with their split: the tail is held out. Those of
/// token files stay in the files. Copies share the tokens.
class Corpus {
 public:
  /// Every token must be below `vocab_size` <= 2^31. floor(held_out_share *
  /// size) tokens are held out.
  Corpus(TokenVector tokens, size_t vocab_size, std::string description,
         double held_out_share, double entropy_floor_nats);
  /// The tokens are asked for when they are needed. Errors   those of Tokens.
  Corpus(std::shared_ptr<Tokens> tokens, size_t vocab_size,
         std::string description, double held_out_share,
         double entropy_floor_nats);

  /// Returns a corpus with this training share that holds out other tokens.
  Corpus HoldingOut(std::vector<int32_t> held_out) const;

  size_t size() const { return training_.count + held_out_.count; }
  size_t vocab_size() const { return vocab_size_; }
  /// Returns one line for people: kind, numbers of files and tokens, and
  /// origin.
  const std::string& description() const { return description_; }
  /// Digests vocab_size and the tokens; the stored width has no effect.
  uint64_t digest() const { return digest_; }
  Share training() const { return training_; }
  Share held_out() const { return held_out_; }

  /// Returns -sum p ln p over the token frequencies p of the training share. A
  /// model that knows nothing else has this loss. NaN if the share is empty.
  double unigram_entropy_nats() const { return unigram_entropy_nats_; }
  /// Returns the entropy of a token given the one before it, which a model that
  /// counts pairs reaches. It is NaN if the share has fewer than two tokens, or
  /// the vocabulary more than kMaxBigramVocabulary, since pairs are too rare
  /// there.
  double bigram_entropy_nats() const { return bigram_entropy_nats_; }
  /// Returns the bits per token that deflate (zlib, level 6, gzip's default)
  /// leaves of the training share's first kMaxDeflated bytes. A token has one,
  /// two or four bytes, as stored. NaN if the share is empty. Another version
  /// of zlib may give another number.
  double deflated_bits() const { return deflated_bits_; }
  /// Returns the conditional entropy of a token given all before it; NaN if
  /// unknown.
  double entropy_floor_nats() const { return entropy_floor_nats_; }

  /// Writes tokens [first, first + out.size()) to `out`. Thread-safe.
  /// Errors   IoError if a token file can't be read, or is no longer what it
  ///          was when the corpus was made.
  void Copy(size_t first, std::span<int32_t> out) const;

 private:
  Corpus(std::shared_ptr<Tokens> tokens, size_t vocab_size,
         std::string description, size_t held_out, double entropy_floor_nats);

  std::shared_ptr<const Tokens> tokens_;
  size_t vocab_size_;
  std::string description_;
  Share training_;
  Share held_out_;
  double entropy_floor_nats_;
  uint64_t digest_ = 0;
  double unigram_entropy_nats_ = 0;
  double bigram_entropy_nats_ = 0;
  double deflated_bits_ = 0;
};

/// Reads or makes the tokens of `source`.
/// Errors   IoError if a file or folder can't be read; ConfigError if a pattern
///          matches no file, the source holds no byte, or text has more than
///          kMaxBytes; FormatError if a token file breaks its format or holds a
///          token outside the vocabulary (with file and position).
Corpus LoadCorpus(const Source& source, double held_out_share);

}  // namespace isoloss::corpus
