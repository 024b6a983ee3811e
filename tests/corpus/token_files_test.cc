#include "isoloss/corpus/token_files.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <limits>
#include <string>
#include <vector>

#include "isoloss/base/error.h"
#include "isoloss/corpus/batches.h"
#include "isoloss/corpus/corpus.h"
#include "support/temporary_folder.h"

namespace isoloss::corpus::token_files_test {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

constexpr double kUnknown = std::numeric_limits<double>::quiet_NaN();
constexpr size_t kBlockBytes = 1 << 16;
constexpr size_t kVocabulary = 1000;

/// Returns tokens of which no two pieces are alike.
std::vector<uint32_t> SomeTokens(size_t count) {
  std::vector<uint32_t> tokens(count);
  for (size_t i = 0; i < count; ++i) {
    tokens[i] = static_cast<uint32_t>(i * i / 7 % kVocabulary);
  }
  return tokens;
}

class TokenFilesTest : public ::testing::Test {
 protected:
  fs::path Write(const std::string& name, const std::string& bytes) {
    const fs::path path = folder_.path() / name;
    std::ofstream(path, std::ios::binary) << bytes;
    return path;
  }

  template <typename T>
  static std::string Bytes(const std::vector<uint32_t>& tokens) {
    const std::vector<T> stored(tokens.begin(), tokens.end());
    std::string bytes(stored.size() * sizeof(T), '\0');
    // memcpy may not be given the null pointer of an empty vector.
    if (!bytes.empty()) std::memcpy(bytes.data(), stored.data(), bytes.size());
    return bytes;
  }

  /// Writes the tokens to files that hold up to each of `ends`, and the rest.
  template <typename T>
  std::vector<fs::path> Split(const std::vector<uint32_t>& tokens,
                              std::vector<size_t> ends) {
    ends.push_back(tokens.size());
    std::vector<fs::path> paths;
    size_t begin = 0;
    for (const size_t end : ends) {
      paths.push_back(
          Write(std::to_string(paths.size()),
                Bytes<T>({tokens.begin() + static_cast<ptrdiff_t>(begin),
                          tokens.begin() + static_cast<ptrdiff_t>(end)})));
      begin = end;
    }
    return paths;
  }

  static void Overwrite(const fs::path& path, size_t place, char byte) {
    std::fstream file(path, std::ios::binary | std::ios::in | std::ios::out);
    file.seekp(static_cast<std::streamoff>(place));
    file.put(byte);
  }

  static std::string ErrorOfCopy(const Corpus& corpus, size_t first,
                                 size_t count) {
    std::vector<int32_t> out(count);
    try {
      corpus.Copy(first, out);
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::kIo);
      return error.what();
    }
    return "no error";
  }

  const test_support::TemporaryFolder folder_;
};

void ExpectEqualFigures(const Corpus& files, const Corpus& memory) {
  EXPECT_EQ(files.size(), memory.size());
  EXPECT_EQ(files.digest(), memory.digest());
  EXPECT_EQ(files.unigram_entropy_nats(), memory.unigram_entropy_nats());
  EXPECT_EQ(files.bigram_entropy_nats(), memory.bigram_entropy_nats());
  EXPECT_EQ(files.deflated_bits(), memory.deflated_bits());
  EXPECT_EQ(files.training().count, memory.training().count);
  EXPECT_EQ(files.held_out().first, memory.held_out().first);
  EXPECT_EQ(files.held_out().count, memory.held_out().count);
}

/// Compares windows around each place where a block or a file ends, and at both
/// ends of the corpus.
void ExpectEqualWindows(const Corpus& files, const Corpus& memory,
                        std::vector<size_t> places, size_t block) {
  for (size_t end = block; end < memory.size(); end += block) {
    places.push_back(end);
  }
  places.insert(places.end(), {0, memory.size()});
  for (const size_t place : places) {
    for (const size_t length : {size_t{1}, size_t{5}, 2 * block + 3}) {
      for (const size_t before : {size_t{0}, size_t{1}, size_t{3}, length}) {
        const size_t first = place - std::min(place, before);
        const size_t count = std::min(length, memory.size() - first);
        std::vector<int32_t> found(count, -1);
        std::vector<int32_t> expected(count);
        files.Copy(first, found);
        memory.Copy(first, expected);
        ASSERT_EQ(found, expected) << first << " " << count;
      }
    }
  }
}

TEST_F(TokenFilesTest, EqualsTheCorpusInMemory) {
  const std::vector<uint32_t> tokens = SomeTokens(150'000);
  // An empty file, one of a single token, and whole blocks.
  const std::vector<size_t> ends = {0, 40'000, 40'001, 40'001, 105'537};
  const Corpus narrow = LoadCorpus(
      TokensSource{Split<uint16_t>(tokens, ends), 16, kVocabulary}, 0.1);
  const Corpus narrow_memory(
      std::vector<uint16_t>(tokens.begin(), tokens.end()), kVocabulary, "", 0.1,
      kUnknown);
  ExpectEqualFigures(narrow, narrow_memory);
  ExpectEqualWindows(narrow, narrow_memory, ends, kBlockBytes / 2);

  const Corpus wide = LoadCorpus(
      TokensSource{Split<uint32_t>(tokens, ends), 32, kVocabulary}, 0.1);
  const Corpus wide_memory(tokens, kVocabulary, "", 0.1, kUnknown);
  ExpectEqualFigures(wide, wide_memory);
  ExpectEqualWindows(wide, wide_memory, ends, kBlockBytes / 4);
}

TEST_F(TokenFilesTest, BatchesEqualThoseInMemory) {
  const std::vector<uint32_t> tokens = SomeTokens(120'000);
  const Corpus files = LoadCorpus(
      TokensSource{Split<uint16_t>(tokens, {50'000}), 16, kVocabulary}, 0.1);
  const Corpus memory(tokens, kVocabulary, "", 0.1, kUnknown);
  Batch found;
  Batch expected;
  for (int64_t step = 1; step <= 4; ++step) {
    Batches(files, 3000, 3).Training(7, step, 8, found);
    Batches(memory, 3000, 3).Training(7, step, 8, expected);
    EXPECT_EQ(found.tokens, expected.tokens);
    EXPECT_EQ(found.labels, expected.labels);
  }
  Batches(files, 3000, 3).HeldOut(0, 3, found);
  Batches(memory, 3000, 3).HeldOut(0, 3, expected);
  EXPECT_EQ(found.tokens, expected.tokens);
  EXPECT_EQ(found.labels, expected.labels);
}

TEST_F(TokenFilesTest, HoldsOutOtherTokens) {
  std::vector<uint32_t> tokens = SomeTokens(1000);
  const Corpus files = LoadCorpus(
      TokensSource{Split<uint16_t>(tokens, {}), 16, kVocabulary}, 0.25);

  const Corpus other = files.HoldingOut({3, 1, 4});

  tokens.resize(750);
  tokens.insert(tokens.end(), {3, 1, 4});
  const Corpus expected(std::vector<uint16_t>(tokens.begin(), tokens.end()),
                        kVocabulary, "", 3.5 / 753, kUnknown);
  ExpectEqualFigures(other, expected);
  ExpectEqualWindows(other, expected, {750}, 100);
}

TEST_F(TokenFilesTest, NoticesBytesThatChanged) {
  const std::vector<uint32_t> tokens = SomeTokens(100'000);
  const fs::path path = Split<uint16_t>(tokens, {}).front();
  const Corpus corpus = LoadCorpus(TokensSource{{path}, 16, kVocabulary}, 0.1);

  Overwrite(path, kBlockBytes + 5, 0x7f);

  EXPECT_EQ(ErrorOfCopy(corpus, kBlockBytes / 2 - 1, 2),
            "corpus: " + path.string() +
                ": was changed from byte 65536 on, but a run needs the tokens "
                "that it began with. Restore the file; --resume goes on.");
  EXPECT_EQ(ErrorOfCopy(corpus, 0, kBlockBytes / 2), "no error");
  EXPECT_EQ(ErrorOfCopy(corpus, kBlockBytes, 100), "no error");

  Write("0", Bytes<uint16_t>(tokens));  // restored
  EXPECT_EQ(ErrorOfCopy(corpus, 0, tokens.size()), "no error");
}

TEST_F(TokenFilesTest, NoticesAFileThatWasCutOff) {
  const std::vector<uint32_t> tokens = SomeTokens(100'000);
  const fs::path path = Split<uint16_t>(tokens, {}).front();
  const Corpus corpus = LoadCorpus(TokensSource{{path}, 16, kVocabulary}, 0.1);

  fs::resize_file(path, kBlockBytes + 11);

  EXPECT_EQ(ErrorOfCopy(corpus, kBlockBytes / 2, 1),
            "corpus: " + path.string() +
                ": was cut off from byte 65547 on, but a run needs the tokens "
                "that it began with. Restore the file; --resume goes on.");
  EXPECT_THAT(ErrorOfCopy(corpus, 99'999, 1),
              HasSubstr("was cut off from byte 65547 on"));
  EXPECT_EQ(ErrorOfCopy(corpus, 0, kBlockBytes / 2), "no error");
}

TEST_F(TokenFilesTest, KeepsWhatItOpened) {
  const std::vector<uint32_t> tokens = SomeTokens(50'000);
  const fs::path path = Split<uint16_t>(tokens, {}).front();
  const Corpus corpus = LoadCorpus(TokensSource{{path}, 16, kVocabulary}, 0.1);

  std::ofstream(path, std::ios::binary | std::ios::app) << "more";
  EXPECT_EQ(ErrorOfCopy(corpus, 0, tokens.size()), "no error");
  fs::rename(Write("other", "another file"), path);
  EXPECT_EQ(ErrorOfCopy(corpus, 0, tokens.size()), "no error");
  fs::remove(path);
  EXPECT_EQ(ErrorOfCopy(corpus, 0, tokens.size()), "no error");
}

TEST_F(TokenFilesTest, NamesTheTokenOutsideTheVocabularyInAnyBlock) {
  std::vector<uint32_t> tokens = SomeTokens(70'000);
  tokens[50'000] = 0x80000001;
  const fs::path path = Split<uint32_t>(tokens, {}).front();
  try {
    LoadCorpus(TokensSource{{path}, 32, kVocabulary}, 0.1);
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kFormat);
    EXPECT_EQ(error.what(),
              "corpus: " + path.string() +
                  ": token 50000 (byte 200000) is 2147483649, but the "
                  "vocabulary has 1000 tokens. Correct model.vocab_size, "
                  "data.token_type or the file.");
  }
}

TEST_F(TokenFilesTest, SaysThatThereAreTooManyFiles) {
  const fs::path path = Write("one", Bytes<uint16_t>({1, 2, 3}));
  const auto load = [&](rlim_t most) {
    const rlimit few = {64, most};
    if (setrlimit(RLIMIT_NOFILE, &few) != 0) std::exit(3);
    try {
      LoadCorpus(TokensSource{std::vector<fs::path>(65, path), 16, 7}, 0.1);
    } catch (const Error& error) {
      std::fputs(error.what(), stderr);
      std::exit(1);
    }
    std::exit(0);
  };
  EXPECT_EXIT(load(320), testing::ExitedWithCode(1), "raise .ulimit -n");
  EXPECT_EXIT(load(321), testing::ExitedWithCode(0), "");
}

}  // namespace
}  // namespace isoloss::corpus::token_files_test
