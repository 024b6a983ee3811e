#include "isoloss/system/output_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

#include "isoloss/base/error.h"
#include "support/temporary_folder.h"

namespace isoloss::system::output_file_test {
namespace {

using ::testing::HasSubstr;

class OutputFile : public ::testing::Test {
 protected:
  std::filesystem::path Write(const std::string& name,
                              const std::string& text) const {
    const std::filesystem::path file = folder_.path() / name;
    std::ofstream(file) << text;
    return file;
  }

  test_support::TemporaryFolder folder_;
};

TEST_F(OutputFile, TakesWhatIsNotThereOrIsAnEarlierOutput) {
  const IsEarlierOutput is_table = HasFirstLineOf("step,loss\n1,2\n");
  EXPECT_NO_THROW(CheckOutput(folder_.path() / "new", {}, "table", is_table));
  EXPECT_NO_THROW(
      CheckOutput(Write("table", "step,loss\n9,9\n"), {}, "table", is_table));
  EXPECT_NO_THROW(CheckOutput(Write("empty", ""), {}, "table", is_table));
}

TEST_F(OutputFile, RefusesWhatIsSomethingElse) {
  try {
    CheckOutput(Write("notes", "my notes\n"), {}, "table",
                HasFirstLineOf("step,loss\n"));
    FAIL() << "it would be replaced";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kConfig);
    EXPECT_THAT(error.what(), HasSubstr("table"));
  }
}

TEST_F(OutputFile, RefusesAnInputUnderWhateverName) {
  const std::filesystem::path input = Write("log", "step,loss\n");
  const std::filesystem::path link = folder_.path() / "link";
  std::filesystem::create_hard_link(input, link);
  for (const auto& output : {input, link, folder_.path() / "." / "log"}) {
    EXPECT_THROW(
        CheckOutput(output, {input}, "table", HasFirstLineOf("step,loss\n")),
        Error)
        << output;
  }
}

TEST_F(OutputFile, TextsLookAlikeByLineOrKeys) {
  const auto file = Write("json", "{\"a\": 1, \"b\": 2}\n");
  EXPECT_TRUE(HasFirstKeysOf("{\"a\": 5, \"b\": 6}\n")(file));
  EXPECT_FALSE(HasFirstKeysOf("{\"a\": 5}\n")(file));
  EXPECT_FALSE(HasFirstLineOf("")(Write("blank", "\n")));
}

}  // namespace
}  // namespace isoloss::system::output_file_test
