// Describes where a corpus comes from, as plain data.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string>
#include <variant>
#include <vector>

namespace isoloss::corpus {

/// Files that are read as bytes have this vocabulary.
inline constexpr size_t kByteVocabulary = 256;

/// Any files, and folders with everything below them, are read as bytes.
struct FilesSource {
  /// Files are concatenated in this order. Inside a folder they are ordered by
  /// their path relative to the folder, compared as bytes. Links to folders are
  /// not followed.
  std::vector<std::filesystem::path> paths;
  /// These shell patterns ("*.h") select files of a folder. They are compared
  /// with the file's name or, if they hold a '/', with its relative path. Empty
  /// selects all. A file that is itself in `paths` always counts.
  std::vector<std::string> include;
};

/// Flat files of unsigned little-endian integers are concatenated.
struct TokensSource {
  std::vector<std::filesystem::path> paths;
  int bits = 16;  ///< 16 or 32
  size_t vocab_size = 0;
};

/// A random source with an exactly known entropy rate has these tokens:
///
///   x_t = (pi_c[x_{t-1}] + e_t) mod vocab_size,  e_t independent;
///   P(e_t = j) = 2^-(j+1) for j < noise_levels - 1, the rest for the last j.
///
/// pi_c are fixed pseudo-random permutations. Order 1 has one; order 2 has
/// kSyntheticContexts, and c = x_{t-2} mod kSyntheticContexts. Since
/// noise_levels <= vocab_size, x_t and the past determine e_t. So the
/// conditional entropy of every token is H(e), whatever x's own distribution:
/// ln 2 * (2 - 2^(2 - noise_levels)) nats. A model knows less at the beginning
/// of a window, so its mean loss stays slightly above.
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

/// Returns H(e) of the formula above.
double EntropyRateNats(const SyntheticSource& source);

}  // namespace isoloss::corpus
