// Where a corpus comes from, as plain data.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string>
#include <variant>
#include <vector>

namespace isoloss::corpus {

/// Vocabulary of files that are read as bytes.
inline constexpr size_t kByteVocabulary = 256;

/// Any files, and folders with everything below them, as bytes.
struct FilesSource {
  /// Concatenated in this order. Inside a folder files are ordered by their
  /// path relative to it, compared as bytes. Links to folders are not followed.
  std::vector<std::filesystem::path> paths;
  /// Which files of a folder count: shell patterns ("*.h"), compared with the
  /// file's name or, if they hold a '/', with its relative path. Empty: all. A
  /// file that `paths` names itself always counts.
  std::vector<std::string> include;
};

/// Flat files of unsigned little-endian integers, concatenated.
struct TokensSource {
  std::vector<std::filesystem::path> paths;
  int bits = 16;  ///< 16 or 32
  size_t vocab_size = 0;
};

/// A random source with an exactly known entropy rate.
///
///   x_t = (pi_c[x_{t-1}] + e_t) mod vocab_size,  e_t independent,
///   P(e_t = j) = 2^-(j+1) for j < noise_levels - 1, the rest for the last j.
///
/// pi_c are fixed pseudo-random permutations. Order 1 has one; order 2 has
/// kSyntheticContexts, and c = x_{t-2} mod kSyntheticContexts. Since
/// noise_levels <= vocab_size, x_t tells e_t to whoever knows the past; so the
/// conditional entropy of every token is H(e), whatever x's own distribution:
/// ln 2 * (2 - 2^(2 - noise_levels)) nats. A model that sees a window's first
/// token only knows less, hence its mean loss stays slightly above.
///
/// Exact    the tokens are integers of (vocab_size, order, noise_levels, seed).
struct SyntheticSource {
  size_t vocab_size = 0;
  int order = 1;            ///< 1 or 2
  size_t noise_levels = 8;  ///< 1: no noise; at most 64
  size_t tokens = 1'000'000;
  uint64_t seed = 0;  ///< the source's own, never a training seed
};
inline constexpr size_t kSyntheticContexts = 4;

using Source = std::variant<FilesSource, TokensSource, SyntheticSource>;

/// H(e) of the formula above.
double EntropyRateNats(const SyntheticSource& source);

}  // namespace isoloss::corpus
