#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "isoloss/base/error.h"
#include "isoloss/base/temporary_folder.h"
#include "isoloss/base/text_file.h"
#include "isoloss/document/json.h"
#include "isoloss/estimators/claim_file.h"
#include "isoloss/estimators/claim_judge.h"
#include "isoloss/studies/study.h"

namespace isoloss::studies::published_claims_test {
namespace {

namespace fs = std::filesystem;

/// The study of a folder's claim; of its own seeds with `seeds` 0.
std::unique_ptr<Study> ClaimOf(const fs::path& folder, size_t seeds = 0) {
  std::unique_ptr<Study> study = kStudy_claim.make();
  for (const Option& option : study->Options()) {
    const std::string name = option.name;
    if (name == "folder") *std::get<fs::path*>(option.value) = folder;
    if (name == "--seeds") *std::get<size_t*>(option.value) = seeds;
  }
  return study;
}

/// Its plan, without costs.
Plan PlanOf(const fs::path& folder, size_t seeds = 0) {
  return ClaimOf(folder, seeds)->MakePlan({.estimate = false});
}

TEST(PublishedClaims, AllCanBeTrained) {
  size_t claims = 0;
  for (const fs::directory_entry& entry :
       fs::directory_iterator(ISOLOSS_PUBLISHED)) {
    if (!entry.is_directory()) continue;
    SCOPED_TRACE(entry.path().string());
    ++claims;

    // Refuses arms and shares of steps that the experiments lack.
    const Plan plan = PlanOf(entry.path());

    for (const Cell& cell : plan.cells) {
      EXPECT_GE(cell.experiment.arms.size(), 2u) << cell.name;
      EXPECT_GE(cell.experiment.train.seeds.size(), 4u) << cell.name;
    }
    EXPECT_TRUE(fs::exists(entry.path() / "claim.svg"));
  }
  EXPECT_GE(claims, 12u);
}

std::string TextOf(const fs::path& file) { return ReadTextFile(file, "."); }

/// The line of a text that begins so; empty if there is none.
std::string LineOf(const std::string& text, const std::string& begin) {
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    if (line.starts_with(begin)) return line;
  }
  return {};
}

/// Cells of a row of a Markdown table.
std::vector<std::string> CellsOf(const std::string& row) {
  std::vector<std::string> cells;
  for (size_t begin = 2, end; begin < row.size(); begin = end + 3) {
    end = std::min(row.find(" |", begin), row.size());
    cells.push_back(row.substr(begin, end - begin));
  }
  return cells;
}

/// What stands between a heading of a text and the next one of its level.
std::string SectionOf(const std::string& text, const std::string& heading) {
  const size_t place = text.find("\n### " + heading + "\n");
  if (place == std::string::npos) return {};
  const size_t first = place + 1;
  return text.substr(first, text.find("\n### ", first) - first);
}

/// The line of a picture that stands below another one; empty if there is none.
std::string TextBelow(const std::string& picture, const std::string& above) {
  const size_t place = picture.find(">" + above + "</text>");
  if (place == std::string::npos) return {};
  const size_t begin = picture.find('>', picture.find("<text", place)) + 1;
  return picture.substr(begin, picture.find("</text>", begin) - begin);
}

/// The verdict on "+0.1 [-0.2, +0.4] %", as a picture says it.
std::string VerdictInPicture(const estimators::Contrast& contrast,
                             const std::string& text) {
  const estimators::ClaimVerdict verdict = estimators::VerdictOfInterval(
      contrast, std::atof(text.c_str() + text.find('[') + 1),
      std::atof(text.c_str() + text.find(',') + 1));
  if (contrast.role == estimators::ContrastRole::kControl)
    return estimators::IsSeen(verdict) ? ": seen" : ": not seen";
  return ": " + estimators::WordOf(estimators::kClaimVerdicts, verdict);
}

/// A claim's picture gives each contrast the verdict of its numbers. The
/// claim's section in the README shows the picture, and its row in the README's
/// table has the picture's verdict.
TEST(PublishedClaims, TableAndPicturesSayTheSame) {
  const fs::path published = ISOLOSS_PUBLISHED;
  const std::string readme = TextOf(published / "README.md");
  for (const fs::directory_entry& entry : fs::directory_iterator(published)) {
    if (!entry.is_directory()) continue;
    SCOPED_TRACE(entry.path().string());
    const std::string name = entry.path().filename().string();
    const fs::path file = entry.path() / "claim.toml";
    const estimators::Claim claim =
        estimators::ParseClaim(TextOf(file), file.string());
    const std::string section = SectionOf(readme, "`" + name + "`");
    const std::string picture = TextOf(entry.path() / "claim.svg");
    const auto row =
        CellsOf(LineOf(readme, "| [" + claim.title + "](#" + name + ")"));
    ASSERT_EQ(row.size(), 3u);
    EXPECT_NE(section.find("(" + name + "/claim.svg)"), std::string::npos);
    for (const estimators::Contrast& contrast : claim.contrasts) {
      const std::string says =
          (contrast.role == estimators::ContrastRole::kControl ? "Control: "
                                                               : "") +
          contrast.says;
      const std::string drawn = TextBelow(picture, says);
      const bool shown = contrast.role == estimators::ContrastRole::kShown;
      EXPECT_TRUE(drawn.ends_with(VerdictInPicture(contrast, drawn) +
                                  (shown ? "; it does not count" : "")))
          << says << " " << drawn;
    }

    std::string verdict = row[2];
    verdict = verdict.substr(2, verdict.size() - 4);  // between asterisks
    EXPECT_NE(picture.find(": " + verdict + "</text>"), std::string::npos);
  }
}

/// A claim in a folder of its own, of dsv3-nano on a synthetic corpus.
class ClaimFolder {
 public:
  explicit ClaimFolder(const std::string& contrast,
                       const std::string& bound = "0") {
    Write("experiment.toml", R"(name = "one"
[model]
preset = "dsv3-nano"
[data]
source = "synthetic"
[train]
steps = 40
warmup_steps = 10
[log]
eval_every = 20
[arms.bf16]
recipe = "bf16"
[arms.unused]
recipe = "mxfp4_floor"
[arms.mxfp8]
recipe = "mxfp8_rceil"
)");
    Write("claim.toml", R"(title = "t"
statement = "s"
[source]
paper = "p"
section = "1"
published = "x"
here = "y"
[[contrasts]]
name = "c"
says = "d"
relation = "above"
published_size = 50
size_source = "ours"
reference = "bf16"
bound = )" + bound + "\n" + contrast);
  }
  fs::path path() const { return folder_.path(); }

 private:
  void Write(const std::string& name, const std::string& text) {
    std::ofstream(folder_.path() / name) << text;
  }
  TemporaryFolder folder_;
};

std::string RefusalOf(const std::string& contrast) {
  const ClaimFolder folder(contrast);
  try {
    PlanOf(folder.path());
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

TEST(ClaimPlan, LeavesOutArmsThatNoContrastNames) {
  const ClaimFolder folder("measure = \"gap\"\narm = \"mxfp8\"\n");

  const Plan plan = PlanOf(folder.path());

  const auto& arms = plan.cells.at(0).experiment.arms;
  ASSERT_EQ(arms.size(), 2u);
  EXPECT_EQ(arms[0].name, "bf16");
  EXPECT_EQ(arms[1].name, "mxfp8");
}

TEST(ClaimPlan, RefusesWhatTheExperimentLacks) {
  EXPECT_NE(RefusalOf("measure = \"gap\"\narm = \"mxfp9\"\n")
                .find("names arm mxfp9, but the experiment has bf16, unused, "
                      "mxfp8"),
            std::string::npos);
  EXPECT_NE(RefusalOf("measure = \"gap\"\narm = \"mxfp8\"\nat = 0.75\n")
                .find("at step 30 of 40, but they are measured every 20 steps"),
            std::string::npos);
}

TEST(ClaimPlan, SaysThePowerOfItsSeeds) {
  const std::string rates = "measure = \"divergence\"\narm = \"mxfp8\"\n";
  const std::string gap = "measure = \"gap\"\narm = \"mxfp8\"\n";
  const auto note = [](const std::string& contrast) {
    const ClaimFolder folder(contrast);
    const Plan plan = PlanOf(folder.path(), 8);
    EXPECT_EQ(plan.notes.size(), 1u);
    return plan.notes.at(0);
  };

  // At least 5 of 8 at a rate of 0.5: 93 / 256. 0 of 8 leaves room for 37 %.
  EXPECT_NE(note(rates).find("published 50 points: 8 seeds see it with chance "
                             "0.36, and an absence with chance 1.00: too few"),
            std::string::npos)
      << note(rates);
  EXPECT_NE(note(gap).find("its power is not known. Train a pilot"),
            std::string::npos);
  EXPECT_NE(note(gap + "spread = 1\n").find("8 seeds see it with chance 1.00"),
            std::string::npos);
}

TEST(PublishedClaims, TellTheirPower) {
  for (const fs::directory_entry& entry :
       fs::directory_iterator(ISOLOSS_PUBLISHED)) {
    if (!entry.is_directory()) continue;
    for (const std::string& note : PlanOf(entry.path()).notes) {
      EXPECT_NE(note.find("seeds see it with chance"), std::string::npos)
          << entry << note;
    }
  }
}

/// What is left of a claim of sizes decides nothing.
TEST(ClaimPlan, CountsTheRunsOfCellsThatHaveNone) {
  const ClaimFolder claim(
      "measure = \"parameter_factor\"\narm = \"mxfp8\"\n"
      "[[cells]]\nname = \"a\"\nset = [\"train.steps=2\"]\n"
      "[[cells]]\nname = \"b\"\nset = [\"train.steps=4\"]\n",
      "1");
  const TemporaryFolder out;
  const std::unique_ptr<Study> study = ClaimOf(claim.path(), 2);
  const Plan plan =
      study->MakePlan({.out = out.path() / "runs", .estimate = false});
  PrepareFolder(plan);
  Plan first = plan;
  first.cells.pop_back();
  ASSERT_TRUE(Train(first));

  const auto answer = study->Judge(plan, /*may_train=*/false);

  // Of four seeds of two arms in two cells, 4 runs exist.
  const std::string note =
      document::ToJson(answer->document)["contrasts"][0]["note"];
  EXPECT_EQ(note.rfind("12 of its runs are missing", 0), 0u) << note;
}

/// From its file to a verdict, with two seeds in place of 24.
TEST(PublishedClaims, TheCheapestOneTrains) {
  const TemporaryFolder folder;
  const std::unique_ptr<Study> study =
      ClaimOf(fs::path(ISOLOSS_PUBLISHED) / "gradient_format", 2);
  const Plan plan = study->MakePlan({.out = folder.path() / "runs"});

  const std::string text = study->Describe(plan);
  EXPECT_NE(text.find("140 steps, 2 seeds of e4m3, e5m2\n"), std::string::npos)
      << text;
  ASSERT_EQ(plan.notes.size(), 1u);
  EXPECT_NE(plan.notes[0].find("too few, 250 would do"), std::string::npos);
  EXPECT_GT(plan.Seconds(), 0);

  PrepareFolder(plan);
  ASSERT_TRUE(Train(plan));
  std::set<std::string> files;
  for (const fs::directory_entry& entry :
       fs::directory_iterator(plan.FolderOf(plan.cells.at(0)))) {
    files.insert(entry.path().filename().string());
  }
  EXPECT_EQ(files, (std::set<std::string>{"e4m3-seed1.h5", "e4m3-seed2.h5",
                                          "e5m2-seed1.h5", "e5m2-seed2.h5"}));
  const auto answer = study->Judge(plan, /*may_train=*/false);
  const auto contrasts = document::ToJson(answer->document)["contrasts"];

  ASSERT_EQ(contrasts.size(), 1u);
  EXPECT_EQ(contrasts[0]["seeds"], 2);
  // A pilot: 22 of 24 seeds of both arms are missing.
  const std::string note = contrasts[0]["note"];
  EXPECT_EQ(note.rfind("44 of its runs are missing", 0), 0u) << note;
  // Both recipes train: their losses lie nearer to each other than 5 %.
  EXPECT_LT(std::fabs(contrasts[0]["estimate"].get<double>()), 5);
  EXPECT_LT(contrasts[0]["lower"], contrasts[0]["estimate"]);
}

}  // namespace
}  // namespace isoloss::studies::published_claims_test
