// Reads files and token files for LoadCorpus (corpus.h).
#include <fnmatch.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <limits>
#include <memory>
#include <span>
#include <system_error>
#include <utility>

#include "isoloss/base/error.h"
#include "isoloss/corpus/corpus.h"
#include "isoloss/corpus/synthetic.h"
#include "isoloss/corpus/token_files.h"

namespace isoloss::corpus {
namespace {

namespace fs = std::filesystem;

constexpr double kUnknown = std::numeric_limits<double>::quiet_NaN();

/// Throws if the bytes make a corpus above kMaxBytes.
void RequireFits(const fs::path& path, uintmax_t bytes) {
  if (bytes <= kMaxBytes) return;
  ThrowError(ErrorKind::kConfig,
             "corpus: {} makes it larger than {} GiB, but text is held in "
             "memory. Give a part of it, or a token file, which is not.",
             path.string(), kMaxBytes >> 30);
}

void AppendFile(const fs::path& path, std::vector<uint8_t>& bytes) {
  struct Close {
    void operator()(std::FILE* file) const { std::fclose(file); }
  };
  const std::unique_ptr<std::FILE, Close> file(std::fopen(path.c_str(), "rb"));
  if (file == nullptr) ThrowUnreadable(path, std::strerror(errno));

  size_t used = bytes.size();
  std::error_code unknown;
  const uintmax_t told = fs::file_size(path, unknown);
  RequireFits(path, used + (unknown ? 0 : told));
  for (;;) {
    constexpr size_t kChunk = 1 << 16;
    RequireFits(path, used);  // it may grow meanwhile
    bytes.resize(used + kChunk);
    const size_t count = std::fread(bytes.data() + used, 1, kChunk, file.get());
    used += count;
    if (count < kChunk) break;
  }
  bytes.resize(used);
  if (std::ferror(file.get()) != 0) {
    ThrowUnreadable(path, std::strerror(errno));
  }
}

/// Returns the type of `path` after following links. Throws if it does not
/// exist.
fs::file_type TypeOf(const fs::path& path) {
  std::error_code error;
  const fs::file_type type = fs::status(path, error).type();
  if (error) ThrowUnreadable(path, error.message());
  return type;
}

/// Returns the relative paths of all regular files below `folder`, in byte
/// order.
std::vector<std::string> FilesBelow(const fs::path& folder) {
  std::vector<std::string> names;
  std::error_code error;
  fs::recursive_directory_iterator entry(folder, error);
  for (; !error && entry != fs::recursive_directory_iterator();
       entry.increment(error)) {
    std::error_code dangling_link;
    if (entry->is_regular_file(dangling_link)) {
      names.push_back(entry->path().lexically_relative(folder).string());
    }
  }
  if (error) ThrowUnreadable(folder, error.message());
  std::sort(names.begin(), names.end());
  return names;
}

bool Matches(const std::string& pattern, const std::string& relative_path) {
  if (pattern.find('/') != std::string::npos) {
    return fnmatch(pattern.c_str(), relative_path.c_str(), FNM_PATHNAME) == 0;
  }
  const std::string name = fs::path(relative_path).filename().string();
  return fnmatch(pattern.c_str(), name.c_str(), 0) == 0;
}

/// Returns the files of a FilesSource, in order.
std::vector<fs::path> SelectFiles(const FilesSource& source) {
  std::vector<fs::path> files;
  std::vector<bool> pattern_used(source.include.size(), false);
  for (const fs::path& path : source.paths) {
    if (TypeOf(path) != fs::file_type::directory) {
      files.push_back(path);
      continue;
    }
    for (const std::string& name : FilesBelow(path)) {
      bool wanted = source.include.empty();
      for (size_t i = 0; i < source.include.size(); ++i) {
        if (!Matches(source.include[i], name)) continue;
        wanted = true;
        pattern_used[i] = true;
      }
      if (wanted) files.push_back(path / name);
    }
  }
  for (size_t i = 0; i < source.include.size(); ++i) {
    if (!pattern_used[i]) {
      ThrowError(ErrorKind::kConfig,
                 "corpus: pattern \"{}\" of data.include matches no file below "
                 "{}. Correct the pattern or remove it.",
                 source.include[i], source.paths.front().string());
    }
  }
  return files;
}

std::string JoinPaths(const std::vector<fs::path>& paths) {
  std::string joined;
  for (const fs::path& path : paths) {
    joined += (joined.empty() ? "" : ", ") + path.string();
  }
  return joined;
}

[[noreturn]] void ThrowEmpty(const std::vector<fs::path>& paths) {
  ThrowError(ErrorKind::kConfig,
             "corpus: {} holds 0 tokens, but training needs text. Correct "
             "data.paths.",
             JoinPaths(paths));
}

/// Returns the share of bytes at the front of a file that no text has. They are
/// control characters except white space, backspace and escape. NUL bytes are
/// left out, so Latin letters in UTF-16 and UTF-32 count like those in ASCII,
/// Latin-1 and UTF-8. UTF-16 with other letters is known by the mark at its
/// beginning.
double ShareOfNoText(std::span<const uint8_t> file) {
  constexpr size_t kFront = 1 << 16;
  const auto front = file.first(std::min(file.size(), kFront));
  const bool has_mark =
      front.size() >= 2 && ((front[0] == 0xff && front[1] == 0xfe) ||
                            (front[0] == 0xfe && front[1] == 0xff));
  if (has_mark) return 0;
  size_t counted = 0;
  size_t controls = 0;
  for (const uint8_t byte : front) {
    if (byte == 0) continue;
    ++counted;
    const bool in_text = (byte >= 0x08 && byte <= 0x0d) || byte == 0x1b;
    if ((byte < 0x20 && !in_text) || byte == 0x7f) ++controls;
  }
  // A file of zeros is no text, either.
  if (counted == 0) return front.empty() ? 0 : 1;
  constexpr size_t kSome = 8;  // a few may stand in any text
  if (controls < kSome) return 0;
  return static_cast<double>(controls) / static_cast<double>(counted);
}

/// Refuses files that are no text if they are more than some pictures in a
/// folder of text. Tokens below 65536 have control characters in every tenth
/// byte or more, and so have random and compressed bytes. Text has none.
class NoText {
 public:
  void Add(const fs::path& file, std::span<const uint8_t> bytes) {
    constexpr double kMost = 0.02;
    const double share = ShareOfNoText(bytes);
    if (share <= kMost) return;
    bytes_ += bytes.size();
    if (bytes.size() <= largest_bytes_) return;
    largest_ = file;
    largest_bytes_ = bytes.size();
    share_ = share;
  }

  /// Errors   FormatError if they are more than a fifth of all bytes.
  void Check(size_t all_bytes) const {
    constexpr size_t kFifth = 5;
    if (bytes_ * kFifth <= all_bytes) return;
    ThrowError(
        ErrorKind::kFormat,
        "corpus: {}: {:.0f} % of its bytes are control characters, but "
        "source = \"files\" reads text. For a token file give "
        "data.source = \"tokens\" and data.token_type (`isoloss init "
        "--tokens uint16`, or uint32). Leave other binary files out with "
        "data.include, and convert text in UTF-16 to UTF-8.",
        largest_.string(), 100 * share_);
  }

 private:
  size_t bytes_ = 0;
  fs::path largest_;
  size_t largest_bytes_ = 0;
  double share_ = 0;
};

Corpus Load(const FilesSource& source, double held_out_share) {
  ISOLOSS_ASSERT(!source.paths.empty());
  const std::vector<fs::path> files = SelectFiles(source);
  std::vector<uint8_t> bytes;
  NoText no_text;
  for (const fs::path& file : files) {
    const fs::file_type type = TypeOf(file);
    if (type != fs::file_type::regular) {
      ThrowUnreadable(file, "it is neither a file nor a folder");
    }
    const size_t first = bytes.size();
    AppendFile(file, bytes);
    no_text.Add(file, std::span(bytes).subspan(first));
  }
  if (bytes.empty()) ThrowEmpty(source.paths);
  no_text.Check(bytes.size());

  std::string description = fmt::format(
      "files: {} bytes of {} file{} in {}", bytes.size(), files.size(),
      files.size() == 1 ? "" : "s", JoinPaths(source.paths));
  return Corpus(std::move(bytes), kByteVocabulary, std::move(description),
                held_out_share, kUnknown);
}

Corpus Load(const TokensSource& source, double held_out_share) {
  ISOLOSS_ASSERT(!source.paths.empty());
  ISOLOSS_ASSERT(source.bits == 16 || source.bits == 32);
  for (const fs::path& file : source.paths) {
    if (TypeOf(file) != fs::file_type::regular) {
      ThrowUnreadable(file, "it is not a file");
    }
  }
  auto tokens = std::make_shared<TokenFiles>(source);
  if (tokens->size() == 0) ThrowEmpty(source.paths);
  std::string description =
      fmt::format("tokens: {} tokens of {} bits in {}", tokens->size(),
                  source.bits, JoinPaths(source.paths));
  return Corpus(std::move(tokens), source.vocab_size, std::move(description),
                held_out_share, kUnknown);
}

Corpus Load(const SyntheticSource& source, double held_out_share) {
  const double entropy = EntropyRateNats(source);
  return Corpus(
      SyntheticTokens(source), source.vocab_size,
      fmt::format("synthetic: {} tokens of order {}, seed {}, {:.4f} nats each",
                  source.tokens, source.order, source.seed, entropy),
      held_out_share, entropy);
}

}  // namespace

Corpus LoadCorpus(const Source& source, double held_out_share) {
  return std::visit(
      [&](const auto& kind) { return Load(kind, held_out_share); }, source);
}

}  // namespace isoloss::corpus
