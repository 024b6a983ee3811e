#include "isoloss/campaign/run_list.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <string>

#include "isoloss/base/error.h"
#include "support/temporary_folder.h"

namespace isoloss::campaign::run_list_test {
namespace {

using ::testing::HasSubstr;
using ::testing::SizeIs;

RunList Sample() {
  return {.folder = "/results",
          .runs = {{.name = "bf16-seed1",
                    .file = "bf16-seed1.h5",
                    .thread_seconds = 1.5},
                   {.name = "1.3M-4/mxfp8-seed1",
                    .file = "cells/1.3M-4/mxfp8-seed1.h5",
                    .thread_seconds = 20}}};
}

std::string WhyNot(const test_support::TemporaryFolder& folder,
                   const std::string& text) {
  const auto file = folder.path() / "list.json";
  std::ofstream(file) << text;
  try {
    ReadRunList(file);
  } catch (const Error& error) {
    return error.what();
  }
  return "it was read";
}

std::string One(const std::string& name, const std::string& file,
                const std::string& rest = R"("thread_seconds": 1)") {
  return R"({"folder": "/r", "on": "cpu", "runs": [{"name": ")" + name +
         R"(", "file": ")" + file + R"(", )" + rest + "}]}";
}

TEST(RunList, IsReadAsItWasWritten) {
  const test_support::TemporaryFolder folder;
  const auto file = folder.path() / "list.json";
  WriteRunList(Sample(), file);
  const RunList read = ReadRunList(file);
  EXPECT_EQ(read.folder, "/results");
  ASSERT_THAT(read.runs, SizeIs(2));
  EXPECT_EQ(read.runs[0].thread_seconds, 1.5);
  EXPECT_EQ(read.runs[1].name, "1.3M-4/mxfp8-seed1");
  EXPECT_EQ(read.runs[1].file, "cells/1.3M-4/mxfp8-seed1.h5");
}

TEST(RunList, ReplacesNothingButAList) {
  const test_support::TemporaryFolder folder;
  const auto file = folder.path() / "list.json";
  WriteRunList(Sample(), file);
  EXPECT_NO_THROW(WriteRunList(Sample(), file));
  std::ofstream(file) << "my notes";
  EXPECT_THROW(WriteRunList(Sample(), file), Error);
}

// Names and files get into scripts, and into paths that are asked for.
TEST(RunList, RefusesWhatAScriptMustNotHold) {
  const test_support::TemporaryFolder folder;
  EXPECT_EQ(WhyNot(folder, One("a", "a.h5")), "it was read");
  for (const char* name : {"a b", "$(id)", "", "-a", "a;b", "a,b", "`id`"}) {
    EXPECT_THAT(WhyNot(folder, One(name, "a.h5")),
                HasSubstr("must be of letters"))
        << name;
  }
  for (const char* file : {"/etc/passwd", "../a.h5", "a/../../b", ""}) {
    EXPECT_THAT(WhyNot(folder, One("a", file)), HasSubstr("lies outside"))
        << file;
  }
  EXPECT_THAT(WhyNot(folder, One("a", "a.h5", R"("thread_seconds": -1)")),
              HasSubstr("negative"));
  EXPECT_THAT(WhyNot(folder, R"({"folder": "/r"})"), HasSubstr("runs"));
}

TEST(RunChoice, KnowsItsRuns) {
  EXPECT_TRUE(RunChoice().Has("anything"));
  const RunChoice choice({"a-seed1", "a-seed2"});
  EXPECT_TRUE(choice.Has("a-seed1"));
  EXPECT_FALSE(choice.Has("a-seed3"));
  EXPECT_NO_THROW(choice.Check({"a-seed1", "a-seed2", "a-seed3"}));
  try {
    choice.Check({"a-seed1", "a-seed3"});
    ADD_FAILURE() << "a-seed2 is none of them";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("a-seed2"));
    EXPECT_THAT(error.what(), HasSubstr("Did you mean `a-seed1`?"));
  }
}

}  // namespace
}  // namespace isoloss::campaign::run_list_test
