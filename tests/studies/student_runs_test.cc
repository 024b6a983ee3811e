#include "isoloss/studies/student_runs.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <string>
#include <vector>

#include "isoloss/base/error.h"
#include "isoloss/base/temporary_folder.h"

namespace isoloss::studies::student_runs_test {
namespace {

estimators::Student Small() {
  estimators::Student student;
  student.width = 32;
  student.hidden = 64;
  student.depth = 2;
  student.batch = 64;
  student.steps = 100;
  student.lr = 0.01;
  return student;
}

/// What a file of a student of 100 steps, seed 1, is refused with, or "".
std::string RefusalOfRun(const std::string& diverged,
                         const std::vector<std::string>& losses) {
  const TemporaryFolder folder;
  estimators::ClaimCell cell;
  cell.student = Small();
  const Cell study = StudentCell(cell, {"fp32"});
  const train::Run run = train::PlanRuns(study.experiment).front();
  std::ofstream file(study.result_file(folder.path(), run));
  file << R"({"seed": 1, "diverged": )" << diverged << R"(, "losses": [)";
  for (size_t i = 0; i < losses.size(); ++i) {
    file << (i > 0 ? ", " : "") << losses[i];
  }
  file << "]}";
  file.close();
  try {
    const auto runs = ReadStudents(study, folder.path());
    EXPECT_EQ(runs.at("fp32").at(0).losses.size(), losses.size());
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kFormat);
    return error.what();
  }
  return "";
}

std::string Entry(int step, const std::string& loss = "0.5") {
  return R"({"step": )" + std::to_string(step) + R"(, "held_out": )" + loss +
         "}";
}

TEST(StudentFiles, HoldALossAfterEachTenth) {
  std::vector<std::string> whole;
  for (int step = 10; step <= 100; step += 10) whole.push_back(Entry(step));
  const std::vector<std::string> cut(whole.begin(), whole.begin() + 4);
  const auto with = [&whole](size_t place, const std::string& entry) {
    std::vector<std::string> changed = whole;
    changed[place] = entry;
    return changed;
  };
  using testing::AllOf;
  using testing::HasSubstr;

  EXPECT_EQ(RefusalOfRun("false", whole), "");
  EXPECT_EQ(RefusalOfRun("true", whole), "");
  EXPECT_EQ(RefusalOfRun("true", cut), "");
  EXPECT_EQ(RefusalOfRun("true", {}), "");
  EXPECT_THAT(RefusalOfRun("false", cut),
              AllOf(HasSubstr("it has 4 losses"),
                    HasSubstr("Remove it, and it is trained again.")));
  for (const char* diverged : {"false", "true"}) {
    EXPECT_THAT(
        RefusalOfRun(diverged, with(3, Entry(41))),
        AllOf(HasSubstr("loss number 4 is of step 41, but must be of step 40"),
              HasSubstr("Remove it, and it is trained again.")));
    EXPECT_THAT(RefusalOfRun(diverged, with(9, Entry(100, "null"))),
                HasSubstr("its loss of step 100 is null"));
  }
}

}  // namespace
}  // namespace isoloss::studies::student_runs_test
