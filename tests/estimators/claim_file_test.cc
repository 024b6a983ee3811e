#include "isoloss/estimators/claim_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "isoloss/base/error.h"

namespace isoloss::estimators::claim_file_test {
namespace {

using testing::HasSubstr;

constexpr const char* kHead = R"(title = "Floor"
statement = "Rounded down, the loss is higher."
[source]
paper = "Recipes"
arxiv = "2506.08027"
section = "3"
published = "8B parameters"
here = "0.3 M parameters"
)";
constexpr const char* kContrast = R"([[contrasts]]
name = "floor"
says = "Rounded down, the loss is higher."
measure = "gap"
relation = "above"
bound = 0
published_size = 0.5
size_source = "table 1"
arm = "floor"
reference = "rceil"
)";

std::string Head() { return kHead; }

/// The message that `text` is refused with, or "".
std::string Refusal(const std::string& text) {
  try {
    ParseClaim(text, "claim.toml");
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kConfig);
    return error.what();
  }
  return "";
}

TEST(ClaimFile, ReadsAClaimWithoutCells) {
  const Claim claim = ParseClaim(Head() + kContrast, "claim.toml");

  EXPECT_EQ(claim.title, "Floor");
  EXPECT_EQ(claim.arxiv, "2506.08027");
  ASSERT_EQ(claim.cells.size(), 1u);
  EXPECT_EQ(claim.cells[0].experiment, "experiment.toml");
  ASSERT_EQ(claim.contrasts.size(), 1u);
  const Contrast& contrast = claim.contrasts[0];
  EXPECT_EQ(contrast.measure, Measure::kGap);
  EXPECT_EQ(contrast.relation, Relation::kAbove);
  EXPECT_EQ(contrast.cell, claim.cells[0].name);
  EXPECT_EQ(contrast.at, 1);
  EXPECT_EQ(contrast.role, ContrastRole::kClaim);
  EXPECT_EQ(claim.looks, 1);
  EXPECT_DOUBLE_EQ(claim.Error(), 0.05);
  EXPECT_EQ(ClaimedText(contrast), "above 0 %");
  EXPECT_EQ(SizeText(contrast), "0.5 %");
  EXPECT_EQ(contrast.Effect(), 0.5);
  EXPECT_EQ(contrast.Nothing(), 0.5);
}

TEST(ClaimFile, ReadsCellsAndInteractions) {
  const Claim claim = ParseClaim(Head() + R"([[cells]]
name = "forced"
set = ["routing.mode=forced_balance"]
[[cells]]
name = "learned"
experiment = "other.toml"
stress = "lr_10"
[[contrasts]]
name = "same"
says = "The gaps are the same."
measure = "interaction"
relation = "within"
bound = 0.25
published_size = 0
size_source = "ours"
arm = "mxfp8"
reference = "bf16"
cell = "learned"
other_cell = "forced"
at = 0.5
)",
                                 "claim.toml");

  ASSERT_EQ(claim.cells.size(), 2u);
  EXPECT_EQ(claim.cells[0].overrides.size(), 1u);
  EXPECT_EQ(claim.cells[1].stress, "lr_10");
  const Contrast& contrast = claim.contrasts.at(0);
  EXPECT_EQ(contrast.other_cell, "forced");
  EXPECT_EQ(contrast.other_arm, "mxfp8");
  EXPECT_EQ(contrast.at, 0.5);
  EXPECT_EQ(ClaimedText(contrast), "within +-0.25 points");
}

TEST(ClaimFile, ReadsStudents) {
  const std::string cell = "[[cells]]\nname = \"s\"\n[cells.student]\n";

  const Claim claim =
      ParseClaim(Head() + cell + "lr = 0.01\nsteps = 50\n" + kContrast, "c");

  ASSERT_TRUE(claim.cells.at(0).student.has_value());
  EXPECT_EQ(claim.cells[0].student->lr, 0.01);
  EXPECT_EQ(claim.cells[0].student->steps, 50);
  EXPECT_THAT(Refusal(Head() + cell + "steps = 55\n" + kContrast),
              HasSubstr("multiple of 10"));
  EXPECT_THAT(Refusal(Head() + cell + "width = 100000\n" + kContrast),
              HasSubstr("from 8 to 512"));
  EXPECT_THAT(Refusal(Head() +
                      "[[cells]]\nname = \"s\"\nstress = \"x\"\n"
                      "[cells.student]\n" +
                      kContrast),
              HasSubstr("stress"));
  std::string factor = Head() + cell + kContrast;
  factor.replace(factor.find("\"gap\""), 5, "\"parameter_factor\"");
  factor.replace(factor.find("bound = 0"), 9, "bound = 0.1");
  EXPECT_THAT(Refusal(factor), HasSubstr("a cell is a student"));
}

/// A second contrast of the claim, `within` a bound of 0.25.
std::string WithControl(const std::string& lines) {
  std::string claim = kContrast;
  claim.replace(claim.find("\"above\""), 7, "\"within\"");
  claim.replace(claim.find("bound = 0"), 9, "bound = 0.25");
  claim.replace(claim.find("size = 0.5"), 10, "size = 0.1");
  return Head() + claim +
         "[[contrasts]]\nname = \"bad\"\nsays = \"Four bits are seen.\"\n"
         "measure = \"gap\"\narm = \"fp4\"\nreference = \"rceil\"\n"
         "role = \"control\"\n" +
         lines;
}

TEST(ClaimFile, ReadsControls) {
  const Claim claim =
      ParseClaim(WithControl("relation = \"above\"\nbound = 0.25\n"), "c");

  EXPECT_EQ(claim.contrasts.at(1).role, ContrastRole::kControl);
  EXPECT_EQ(claim.CountOf(ContrastRole::kControl), 1u);
  EXPECT_DOUBLE_EQ(claim.Error(), 0.025);
  // What sees less than the claim lets pass shows nothing.
  EXPECT_THAT(Refusal(WithControl("relation = \"above\"\nbound = 0.2\n")),
              HasSubstr("must lie above 0.25"));
  EXPECT_THAT(Refusal(WithControl("relation = \"below\"\nbound = -0.2\n")),
              HasSubstr("must lie below -0.25"));
  EXPECT_THAT(Refusal(WithControl("relation = \"within\"\nbound = 0.3\n")),
              HasSubstr("a control shows that a bad recipe is seen"));
}

/// A claim of cells x and y with these contrasts.
std::string WithContrasts(const std::vector<std::string>& contrasts) {
  std::string text =
      Head() + "[[cells]]\nname = \"x\"\n[[cells]]\nname = \"y\"\n";
  for (size_t i = 0; i < contrasts.size(); ++i) {
    text += "[[contrasts]]\nname = \"c" + std::to_string(i) +
            "\"\nsays = \"It is so.\"\narm = \"a\"\nreference = \"b\"\n" +
            contrasts[i];
  }
  return text;
}

TEST(ClaimFile, NeedsAControlOfEachBound) {
  const std::string size = "published_size = 0\nsize_source = \"ours\"\n";
  const std::string within = "relation = \"within\"\nbound = 0.25\n" + size;
  const std::string gap = "measure = \"gap\"\n" + within;
  const std::string interaction =
      "measure = \"interaction\"\nother_cell = \"y\"\n" + within;
  const std::string rates = "measure = \"divergence\"\n" + within;
  const auto control = [](const std::string& lines) {
    return "role = \"control\"\nrelation = \"above\"\nbound = 0.25\n" + lines;
  };
  const auto refusal = [](const std::vector<std::string>& contrasts) {
    return Refusal(WithContrasts(contrasts));
  };
  const std::string of_x = control("measure = \"gap\"\n");
  const std::string of_y = control("measure = \"gap\"\ncell = \"y\"\n");
  const std::string change =
      control("measure = \"gap_change\"\nfrom = 0.5\ncell = \"y\"\n");
  const std::string diverges = control("measure = \"divergence\"\n");

  EXPECT_EQ(refusal({gap, of_x}), "");
  EXPECT_THAT(refusal({gap, of_y}),
              HasSubstr("none of the controls compares losses in % in cell x"));
  EXPECT_EQ(refusal({gap, gap + "cell = \"y\"\n", of_x, of_y}), "");
  EXPECT_THAT(refusal({gap, gap + "cell = \"y\"\n", of_x}),
              HasSubstr("losses in % in cell y"));
  // Percent and points of losses, and points of rates, are not the same.
  EXPECT_EQ(refusal({interaction, change}), "");
  EXPECT_THAT(refusal({interaction, of_x}),
              HasSubstr("losses in points in cell x or y"));
  EXPECT_THAT(refusal({interaction, diverges}), HasSubstr("losses in points"));
  EXPECT_EQ(refusal({rates, diverges}), "");
  EXPECT_THAT(refusal({rates, change}),
              HasSubstr("rates of divergence in points in cell x"));
  // What does not decide needs none; nor does what can't be reproduced.
  std::string shown = interaction + "role = \"shown\"\n";
  shown.erase(shown.find(size), size.size());
  EXPECT_EQ(refusal({gap, of_x, shown}), "");
  EXPECT_EQ(refusal({gap}), "");
}

TEST(ClaimFile, KnowsNoFactorWithinABound) {
  EXPECT_THAT(Refusal(WithContrasts({"measure = \"parameter_factor\"\n"
                                     "relation = \"within\"\nbound = 0.25\n"
                                     "published_size = 0\n"
                                     "size_source = \"ours\"\n"})),
              HasSubstr("a factor of parameters is 1 if two arms are alike"));
}

TEST(ClaimFile, DividesTheErrorByTheLooks) {
  const Claim claim = ParseClaim("looks = 2\n" + Head() + kContrast, "c");

  EXPECT_EQ(claim.looks, 2);
  EXPECT_DOUBLE_EQ(claim.Error(), 0.025);
  for (const char* looks : {"0", "11", "1.5"}) {
    EXPECT_THAT(Refusal("looks = " + std::string(looks) + "\n" + Head()),
                HasSubstr("from 1 to 10"));
  }
}

TEST(ClaimFile, NamesUnknownKeysAndTheKnownOnes) {
  const std::string message = Refusal(Head() + kContrast + "boundd = 1\n");

  EXPECT_THAT(message, HasSubstr("claim.toml:19"));
  EXPECT_THAT(message, HasSubstr("boundd"));
  EXPECT_THAT(message, HasSubstr("relation"));
  EXPECT_THAT(Refusal(Head() + "paperr = \"x\"\n" + kContrast),
              HasSubstr("paperr"));
  // Shares of steps are nothing that a rate of divergence has.
  std::string text = Head() + kContrast + "at = 0.5\n";
  text.replace(text.find("\"gap\""), 5, "\"divergence\"");
  EXPECT_THAT(Refusal(text), HasSubstr("`contrasts.at`"));
}

TEST(ClaimFile, RefusesWhatMeansNothing) {
  const auto with = [](const std::string& key, const std::string& line) {
    std::string text = Head() + kContrast;
    const size_t place = text.rfind("\n" + key + " = ") + 1;
    return text.replace(place, text.find('\n', place) - place, line);
  };

  EXPECT_THAT(Refusal(with("relation", "relation = \"within\"")),
              HasSubstr("must be above 0"));
  EXPECT_THAT(Refusal(with("measure", "measure = \"gaps\"")),
              HasSubstr("parameter_factor"));
  EXPECT_THAT(Refusal(with("measure", "measure = \"interaction\"")),
              HasSubstr("both are the same"));
  EXPECT_THAT(Refusal(with("measure", "measure = \"gap_change\"\nfrom = 1")),
              HasSubstr("must be below `at`"));
  EXPECT_THAT(Refusal(with("bound", "bound = nan")), HasSubstr("bound"));
  EXPECT_THAT(
      Refusal(with("measure", "measure = \"divergence\"\nequivalence = -1")),
      HasSubstr("equivalence"));
  EXPECT_THAT(Refusal(with("reference", "reference = \"a\"\ncell = \"none\"")),
              HasSubstr("cell"));
  std::string shown = with("bound", "bound = 0\nrole = \"shown\"");
  shown.erase(shown.find("published_size"),
              shown.find("arm = ") - shown.find("published_size"));
  EXPECT_THAT(Refusal(shown), HasSubstr("none of role \"claim\""));
  EXPECT_THAT(Refusal(Head()), HasSubstr("none of role \"claim\""));
  EXPECT_THAT(Refusal(with("bound", "bound = 0\nrole = \"judge\"")),
              HasSubstr("claim, control, shown"));
  EXPECT_THAT(Refusal(Head() + kContrast + kContrast), HasSubstr("Rename"));
}

TEST(ClaimFile, NeedsThePublishedSizeOfAClaim) {
  const auto with = [](const std::string& line) {
    std::string text = Head() + kContrast;
    const size_t place = text.find("published_size = 0.5\n");
    return text.replace(place, 21, line);
  };

  EXPECT_THAT(Refusal(with("")), HasSubstr("published_size"));
  EXPECT_THAT(Refusal(with("published_size = 0\n")),
              HasSubstr("must lie above the bound"));
  EXPECT_THAT(Refusal(with("published_size = 0.5\nequivalence = 0.6\n")),
              HasSubstr("only 0.5 from the bound"));
  EXPECT_THAT(Refusal(with("published_size = 0.5\nspread = 0\n")),
              HasSubstr("spread"));
  std::string unsourced = with("published_size = 0.5\n");
  unsourced.erase(unsourced.find("size_source"), 24);
  EXPECT_THAT(Refusal(unsourced), HasSubstr("size_source"));
  // A size of a contrast that does not decide would be read by nobody.
  EXPECT_THAT(Refusal(with("published_size = 0.5\nrole = \"shown\"\n")),
              HasSubstr("published_size"));
  EXPECT_THAT(Refusal(WithContrasts({"measure = \"gap\"\n"
                                     "relation = \"within\"\nbound = 0.25\n"
                                     "published_size = 0.25\n"
                                     "size_source = \"ours\"\n"})),
              HasSubstr("must lie within +-0.25"));
}

TEST(ClaimFile, BoundsHostileFiles) {
  std::string many = Head();
  for (int i = 0; i < 17; ++i) many += "[[cells]]\nname = \"x\"\n";
  EXPECT_THAT(Refusal(many), HasSubstr("17 tables, but may have 16"));
  std::string arms = Head();
  for (int i = 0; i < 5; ++i) {
    std::string contrast = kContrast;
    for (const char* name : {"\"floor\"", "\"rceil\""}) {
      const size_t place = contrast.rfind(name);
      contrast.insert(place + 1, std::to_string(i));
    }
    contrast.replace(contrast.find("\"floor\""), 7,
                     "\"" + std::to_string(i) + "\"");
    arms += contrast;
  }
  EXPECT_THAT(Refusal(arms), HasSubstr("name 10 arms, but may name 8"));
  const std::string student = "[[cells]]\nname = \"s\"\n[cells.student]\n";
  EXPECT_THAT(Refusal(Head() + student +
                      "width = 512\nhidden = 2048\nbatch = 256\n"
                      "steps = 100000\n" +
                      kContrast),
              HasSubstr("operations, but one may have 1e+14"));
  EXPECT_THAT(Refusal(Head() + student +
                      "width = 512\nhidden = 2048\nbatch = 4096\n"
                      "steps = 10\n" +
                      kContrast),
              HasSubstr("MiB, but one may have 256"));
  // No file outside of the claim's folder.
  for (const char* path : {"../up.toml", "/etc/passwd", ".hidden", ""}) {
    EXPECT_THAT(Refusal(Head() + "[[cells]]\nname = \"x\"\nexperiment = \"" +
                        path + "\"\n" + kContrast),
                HasSubstr("must be a name"));
  }
  EXPECT_THAT(Refusal("title = \"" + std::string(2001, 'x') + "\"\n"),
              HasSubstr("2001 bytes"));
}

}  // namespace
}  // namespace isoloss::estimators::claim_file_test
