#include "isoloss/corpus/token_files.h"

#include <fcntl.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstring>
#include <utility>

#include "isoloss/base/digest.h"
#include "isoloss/base/error.h"

namespace isoloss::corpus {
namespace {

namespace fs = std::filesystem;

static_assert(std::endian::native == std::endian::little,
              "token files are read in place");

/// A window of a batch is read in one or two of them. Smaller blocks would save
/// no time of a disk.
constexpr size_t kBlockBytes = size_t{1} << 16;

/// A command opens fewer other files, pipes and sockets than this.
constexpr rlim_t kOtherFiles = 256;

/// Makes room for files that stay open. A run that finds none at its end could
/// not finish.
/// Errors   IoError if the process may not open so many.
void MakeRoomFor(size_t files) {
  rlimit limit = {};
  const rlim_t needed = files + kOtherFiles;
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  if (limit.rlim_cur >= needed) return;
  if (limit.rlim_max >= needed) {
    limit.rlim_cur = needed;
    if (::setrlimit(RLIMIT_NOFILE, &limit) == 0) return;
  }
  ThrowError(ErrorKind::kIo,
             "corpus: data.paths has {} files, which stay open, but the "
             "process may open {}, of which it needs {} for others. Join token "
             "files, or raise `ulimit -n`.",
             files, limit.rlim_max, kOtherFiles);
}

template <typename T>
void WidenAs(std::span<const std::byte> bytes, std::span<int32_t> out) {
  for (size_t i = 0; i < out.size(); ++i) {
    T token = 0;
    std::memcpy(&token, bytes.data() + i * sizeof(T), sizeof(T));
    out[i] = static_cast<int32_t>(token);
  }
}

/// Tokens of 2^31 and above become negative.
void Widen(std::span<const std::byte> bytes, std::span<int32_t> out) {
  if (bytes.size() == out.size() * sizeof(uint16_t)) {
    WidenAs<uint16_t>(bytes, out);
  } else {
    WidenAs<uint32_t>(bytes, out);
  }
}

[[noreturn]] void ThrowChanged(const fs::path& path, size_t first_byte,
                               const std::string& reason) {
  ThrowError(ErrorKind::kIo,
             "corpus: {}: {} from byte {} on, but a run needs the tokens that "
             "it began with. Restore the file; --resume goes on.",
             path.string(), reason, first_byte);
}

}  // namespace

void ThrowUnreadable(const fs::path& path, const std::string& reason) {
  ThrowError(ErrorKind::kIo,
             "corpus: {} cannot be read: {}. Correct data.paths or the file's "
             "permissions.",
             path.string(), reason);
}

TokenFiles::TokenFiles(const TokensSource& source)
    : width_(static_cast<size_t>(source.bits) / 8),
      vocab_size_(source.vocab_size) {
  if (source.paths.size() > 1) MakeRoomFor(source.paths.size());
  for (const fs::path& path : source.paths) Open(path);
}

void TokenFiles::Open(const fs::path& path) {
  Descriptor descriptor(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (descriptor.get() < 0) ThrowUnreadable(path, std::strerror(errno));
  const size_t bytes = FileSize(descriptor, path);
  if (const size_t odd_bytes = bytes % width_; odd_bytes != 0) {
    ThrowError(ErrorKind::kFormat,
               "corpus: {} ends with {} odd byte{}, but its tokens have {} "
               "bytes each. Correct data.token_type or the file.",
               path.string(), odd_bytes, odd_bytes == 1 ? "" : "s", width_);
  }
  const size_t first = size();
  files_.push_back({path, std::move(descriptor), first, bytes / width_, {}});
}

size_t TokenFiles::size() const {
  return files_.empty() ? 0 : files_.back().first + files_.back().count;
}

size_t TokenFiles::TokensPerBlock() const { return kBlockBytes / width_; }

TokenFiles::Bytes TokenFiles::ReadBlock(const File& file, size_t block,
                                        std::span<std::byte> buffer) const {
  const size_t first = block * TokensPerBlock();
  const size_t wanted = std::min(TokensPerBlock(), file.count - first) * width_;
  size_t done = 0;
  while (done < wanted) {
    const ssize_t count =
        ::pread(file.descriptor.get(), buffer.data() + done, wanted - done,
                static_cast<off_t>(first * width_ + done));
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) ThrowUnreadable(file.path, std::strerror(errno));
    if (count == 0) break;
    done += static_cast<size_t>(count);
  }
  if (done < wanted) {
    ThrowChanged(file.path, FileSize(file.descriptor, file.path),
                 "was cut off");
  }
  return buffer.first(wanted);
}

void TokenFiles::Copy(size_t first, std::span<int32_t> out) const {
  std::vector<std::byte> buffer(kBlockBytes);
  while (!out.empty()) {
    const File& file = *std::prev(
        std::ranges::upper_bound(files_, first, std::less(), &File::first));
    const size_t block = (first - file.first) / TokensPerBlock();
    const size_t begin = (first - file.first) % TokensPerBlock();
    const Bytes bytes = ReadBlock(file, block, buffer);
    if (DigestOf(bytes.data(), bytes.size()) != file.digests[block]) {
      ThrowChanged(file.path, block * kBlockBytes, "was changed");
    }
    const size_t count = std::min(out.size(), bytes.size() / width_ - begin);
    Widen(bytes.subspan(begin * width_, count * width_), out.first(count));
    out = out.subspan(count);
    first += count;
  }
}

void TokenFiles::ReadThrough(const Sink& sink) {
  std::vector<std::byte> buffer(kBlockBytes);
  std::vector<int32_t> tokens;
  for (File& file : files_) {
    file.digests.reserve((file.count + TokensPerBlock() - 1) /
                         TokensPerBlock());
    for (size_t block = 0; block * TokensPerBlock() < file.count; ++block) {
      const Bytes bytes = ReadBlock(file, block, buffer);
      file.digests.push_back(DigestOf(bytes.data(), bytes.size()));
      tokens.resize(bytes.size() / width_);
      Widen(bytes, tokens);
      CheckVocabulary(file, block, tokens);
      sink(tokens);
    }
  }
}

void TokenFiles::CheckVocabulary(const File& file, size_t block,
                                 std::span<const int32_t> tokens) const {
  const auto value = [](int32_t token) { return static_cast<uint32_t>(token); };
  const auto is_bad = [&](int32_t token) {
    return value(token) >= vocab_size_;
  };
  uint32_t largest = 0;
  for (const int32_t token : tokens) largest = std::max(largest, value(token));
  if (largest < vocab_size_) return;
  const auto bad = std::ranges::find_if(tokens, is_bad);
  const size_t place =
      block * TokensPerBlock() + static_cast<size_t>(bad - tokens.begin());
  ThrowError(ErrorKind::kFormat,
             "corpus: {}: token {} (byte {}) is {}, but the vocabulary has {} "
             "tokens. Correct model.vocab_size, data.token_type or the file.",
             file.path.string(), place, place * width_, value(*bad),
             vocab_size_);
}

}  // namespace isoloss::corpus
