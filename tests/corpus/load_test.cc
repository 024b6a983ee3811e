#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "isoloss/base/error.h"
#include "isoloss/corpus/corpus.h"
#include "support/temporary_folder.h"

namespace isoloss::corpus::load_test {
namespace {

namespace fs = std::filesystem;

/// A folder of its own for each test, removed afterwards.
class LoadCorpusTest : public ::testing::Test {
 protected:
  fs::path Write(const std::string& name, const std::string& bytes) {
    const fs::path path = root_ / name;
    fs::create_directories(path.parent_path());
    std::ofstream(path, std::ios::binary) << bytes;
    return path;
  }

  static std::string Text(const Corpus& corpus) {
    std::vector<int32_t> tokens(corpus.size());
    corpus.Copy(0, tokens);
    return std::string(tokens.begin(), tokens.end());
  }

  static std::string ErrorOf(const Source& source, ErrorKind kind) {
    try {
      LoadCorpus(source, 0.1);
    } catch (const Error& error) {
      EXPECT_EQ(ErrorKindName(error.kind()), std::string(ErrorKindName(kind)));
      return error.what();
    }
    return "no error";
  }

  const test_support::TemporaryFolder folder_;
  const fs::path root_ = folder_.path();
};

TEST_F(LoadCorpusTest, ConcatenatesFilesByRelativePath) {
  Write("b.h", "2");
  Write("a/z.h", "1");
  Write("a.h", "0");  // '.' < '/'
  Write("c/d/e", "3");

  const Corpus corpus = LoadCorpus(FilesSource{{root_}, {}}, 0.1);

  EXPECT_EQ(Text(corpus), "0123");
  EXPECT_EQ(corpus.vocab_size(), 256u);
  EXPECT_EQ(corpus.description(),
            "files: 4 bytes of 4 files in " + root_.string());
}

TEST_F(LoadCorpusTest, KeepsTheGivenOrderOfPathsAndHighBytes) {
  const fs::path second = Write("1", "\xff");
  const fs::path first = Write("2", "\x01\x80");

  const Corpus corpus = LoadCorpus(FilesSource{{first, second}, {}}, 0.1);

  std::vector<int32_t> tokens(3);
  corpus.Copy(0, tokens);
  EXPECT_EQ(tokens, (std::vector<int32_t>{1, 128, 255}));
}

TEST_F(LoadCorpusTest, SelectsByFileNameOrByRelativePath) {
  Write("a.h", "a");
  Write("a.cc", "-");
  Write("src/b.h", "b");
  Write("src/c.inl", "c");
  Write("src/deep/d.inl", "-");

  const Corpus corpus =
      LoadCorpus(FilesSource{{root_}, {"*.h", "src/*.inl"}}, 0.1);

  EXPECT_EQ(Text(corpus), "abc");
}

TEST_F(LoadCorpusTest, RefusesWhatIsMissingEmptyOrUnmatched) {
  const std::string root = root_.string();
  EXPECT_EQ(ErrorOf(FilesSource{{root_ / "none"}, {}}, ErrorKind::kIo),
            "corpus: " + root +
                "/none cannot be read: No such file or directory. Correct "
                "data.paths or the file's permissions.");
  EXPECT_EQ(ErrorOf(FilesSource{{root_}, {}}, ErrorKind::kConfig),
            "corpus: " + root +
                " holds 0 tokens, but training needs text. Correct "
                "data.paths.");

  const fs::path empty = Write("empty.h", "");
  EXPECT_EQ(ErrorOf(FilesSource{{empty}, {}}, ErrorKind::kConfig),
            "corpus: " + empty.string() +
                " holds 0 tokens, but training needs text. Correct "
                "data.paths.");
  EXPECT_EQ(ErrorOf(FilesSource{{root_}, {"*.h", "*.hh"}}, ErrorKind::kConfig),
            "corpus: pattern \"*.hh\" of data.include matches no file below " +
                root + ". Correct the pattern or remove it.");
  EXPECT_EQ(ErrorOf(FilesSource{{"/dev/null"}, {}}, ErrorKind::kIo),
            "corpus: /dev/null cannot be read: it is neither a file nor a "
            "folder. Correct data.paths or the file's permissions.");
}

TEST_F(LoadCorpusTest, RefusesAFileWithoutReadPermission) {
  if (geteuid() == 0) GTEST_SKIP() << "root may read everything";
  const fs::path path = Write("secret", "x");
  fs::permissions(path, fs::perms::none);

  EXPECT_EQ(ErrorOf(FilesSource{{path}, {}}, ErrorKind::kIo),
            "corpus: " + path.string() +
                " cannot be read: Permission denied. Correct data.paths or "
                "the file's permissions.");
}

TEST_F(LoadCorpusTest, ReadsTokensOfBothWidths) {
  const fs::path narrow = Write("16", std::string("\x34\x12\x01\x00", 4));
  const fs::path wide = Write("32", std::string("\x34\x12\x00\x00", 4));

  const Corpus two = LoadCorpus(TokensSource{{narrow, narrow}, 16, 5000}, 0.1);
  const Corpus one = LoadCorpus(TokensSource{{wide}, 32, 5000}, 0.1);

  std::vector<int32_t> tokens(4);
  two.Copy(0, tokens);
  EXPECT_EQ(tokens, (std::vector<int32_t>{0x1234, 1, 0x1234, 1}));
  tokens.resize(1);
  one.Copy(0, tokens);
  EXPECT_EQ(tokens, (std::vector<int32_t>{0x1234}));
  EXPECT_EQ(two.vocab_size(), 5000u);
}

TEST_F(LoadCorpusTest, NamesTheTokenOutsideTheVocabulary) {
  const fs::path good = Write("good", std::string("\x01\x00", 2));
  const fs::path bad = Write("bad", std::string("\x01\x00\x07\x00", 4));
  const fs::path odd = Write("odd", std::string("\x01\x00\x01", 3));

  EXPECT_EQ(ErrorOf(TokensSource{{good, bad}, 16, 7}, ErrorKind::kFormat),
            "corpus: " + bad.string() +
                ": token 1 (byte 2) is 7, but the vocabulary has 7 tokens. "
                "Correct model.vocab_size, data.token_type or the file.");
  EXPECT_EQ(ErrorOf(TokensSource{{odd}, 16, 7}, ErrorKind::kFormat),
            "corpus: " + odd.string() +
                " ends with 1 odd byte, but its tokens have 2 bytes each. "
                "Correct data.token_type or the file.");
}

std::string TokensOfBits(int bytes_each, uint32_t vocabulary) {
  std::string bytes;
  for (uint32_t i = 0; i < 4000; ++i) {
    const uint32_t token = i * i % vocabulary;
    for (int byte = 0; byte < bytes_each; ++byte) {
      bytes += static_cast<char>(token >> (8 * byte));
    }
  }
  return bytes;
}

TEST_F(LoadCorpusTest, RefusesTokensThatAreReadAsText) {
  const std::string text(70'000, 'x');
  for (const std::string& tokens :
       {TokensOfBits(2, 65), TokensOfBits(2, 300), TokensOfBits(2, 50257),
        TokensOfBits(4, 50257), TokensOfBits(4, 128256),
        std::string(1000, '\0')}) {
    const fs::path file = Write("t.bin", tokens);
    EXPECT_THAT(ErrorOf(FilesSource{{file}, {}}, ErrorKind::kFormat),
                ::testing::AllOf(::testing::HasSubstr(file.string()),
                                 ::testing::HasSubstr("--tokens uint16")));
    // Beside text, too, unless they are a fifth of it at most.
    const fs::path some = Write("text", text.substr(0, tokens.size()));
    const fs::path much = Write("much", text.substr(0, 4 * tokens.size()));
    EXPECT_NE(ErrorOf(FilesSource{{some, file}, {}}, ErrorKind::kFormat),
              "no error");
    EXPECT_EQ(ErrorOf(FilesSource{{much, file}, {}}, ErrorKind::kFormat),
              "no error")
        << much.string();
  }
}

TEST_F(LoadCorpusTest, TakesTextOfAnyEncoding) {
  std::string utf16;
  std::string utf32;
  for (const char letter : std::string("All happy families\tare alike.\r\n")) {
    utf16 += std::string{letter, '\0'};
    utf32 += std::string{letter, '\0', '\0', '\0'};
  }
  // "Все" in UTF-16 with its mark; its high bytes are control characters.
  const std::string cyrillic("\xff\xfe\x12\x04\x41\x04\x35\x04", 8);
  for (const std::string& text :
       {utf16, utf32, cyrillic, std::string("na\xefve caf\xe9, \xa7 5\f\n"),
        std::string("na\xc3\xafve \xe6\xbc\xa2\n"),
        std::string("\x1b[31mred\x1b[0m")}) {
    EXPECT_EQ(ErrorOf(FilesSource{{Write("a", text)}, {}}, ErrorKind::kFormat),
              "no error");
  }
}

TEST_F(LoadCorpusTest, RefusesMoreTextThanIsHeldInMemory) {
  const fs::path path = Write("sparse", "text");
  fs::resize_file(path, kMaxBytes + 1);  // takes no place on the disk
  EXPECT_THAT(ErrorOf(FilesSource{{path}, {}}, ErrorKind::kConfig),
              ::testing::HasSubstr("larger than 4 GiB"));
}

TEST_F(LoadCorpusTest, StatesTheFloorOfASyntheticSource) {
  const SyntheticSource source = {
      .vocab_size = 8, .noise_levels = 2, .tokens = 100};

  const Corpus corpus = LoadCorpus(source, 0.5);

  EXPECT_EQ(corpus.size(), 100u);
  EXPECT_EQ(corpus.entropy_floor_nats(), EntropyRateNats(source));
}

}  // namespace
}  // namespace isoloss::corpus::load_test
