// Reads tokens from files when they are asked for.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "isoloss/base/files.h"
#include "isoloss/corpus/source.h"
#include "isoloss/corpus/tokens.h"

namespace isoloss::corpus {

[[noreturn]] void ThrowUnreadable(const std::filesystem::path& path,
                                  const std::string& reason);

/// Keeps no token in memory, but a digest of each block of bytes as ReadThrough
/// met it. Every Copy compares, so that a corpus stays what its own digest
/// says. Files are read and not mapped, since a mapped file that is cut off
/// kills its readers.
class TokenFiles final : public Tokens {
 public:
  /// Opens the files, which stay open.
  /// Errors   IoError if a file can't be opened; FormatError if its bytes are
  ///          no whole number of tokens.
  explicit TokenFiles(const TokensSource& source);

  size_t size() const override;
  size_t width() const override { return width_; }
  /// Errors   IoError if a file can't be read, or its bytes have changed.
  void Copy(size_t first, std::span<int32_t> out) const override;
  /// Errors   IoError if a file can't be read or becomes shorter; FormatError
  ///          if it holds a token outside the vocabulary.
  void ReadThrough(const Sink& sink) override;

 private:
  struct File {
    std::filesystem::path path;
    Descriptor descriptor;
    size_t first;  ///< number of tokens in the files before
    size_t count;
    std::vector<uint64_t> digests;  ///< of its blocks
  };
  using Bytes = std::span<const std::byte>;

  size_t TokensPerBlock() const;
  void Open(const std::filesystem::path& path);
  /// Returns what the file holds of a block, which is less if it was cut off.
  /// `buffer` has the size of a block.
  Bytes ReadBlock(const File& file, size_t block,
                  std::span<std::byte> buffer) const;
  void CheckVocabulary(const File& file, size_t block,
                       std::span<const int32_t> tokens) const;

  size_t width_;
  size_t vocab_size_;
  std::vector<File> files_;
};

}  // namespace isoloss::corpus
