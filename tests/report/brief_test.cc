#include "isoloss/document/brief.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <sstream>
#include <string>
#include <vector>

#include "gate/judged_runs.h"
#include "isoloss/gate/check_titles.h"
#include "isoloss/report/sentences.h"
#include "isoloss/report/verdict_result.h"

namespace isoloss::report::brief_test {
namespace {

using document::kBriefLines;

std::string RenderBrief(const gate::Judgement& judgement,
                        const document::TextStyle& style) {
  return document::RenderBrief(BriefResultOf(judgement, style), style);
}

using gate::Check;
using gate::Judgement;
using gate::Outcome;
using ::testing::HasSubstr;
using ::testing::Not;

Judgement Judged(const std::vector<double>& percent,
                 const gate::Policy& policy = {}) {
  return gate::JudgeRuns(test_support::SyntheticExperiment(percent), policy);
}

std::vector<std::string> LinesOf(const std::string& text) {
  std::istringstream stream(text);
  std::vector<std::string> lines;
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  return lines;
}

/// Bytes that begin a UTF-8 character: columns of what these tests draw.
size_t Columns(const std::string& line) {
  return static_cast<size_t>(std::ranges::count_if(line, [](char c) {
    return (static_cast<unsigned char>(c) & 0xC0U) != 0x80U;
  }));
}

/// The same without colours and with what wrapping broke put together.
std::string OnOneLine(const std::string& text) {
  std::string joined;
  for (const char c : text) {
    const char next = c == '\n' ? ' ' : c;
    if (next == ' ' && joined.ends_with(' ')) continue;
    joined += next;
  }
  return joined;
}

Judgement BitEqual() {
  auto runs = test_support::SyntheticExperiment({0, 0});
  for (auto& run : runs) {
    run.log.provenance.final_weights_digest =
        fmt::format("f{}", run.log.provenance.seed);
    run.log.provenance.recipe = "bf16";
    run.log.provenance.resolved_recipe = "bf16";
    run.log.provenance.graph = test_support::SampleGraph("");
    run.log.provenance.quantized_gemms_per_step = 0;
    run.log.steps.quantized_gemms.assign(test_support::kSyntheticSteps, 0);
  }
  gate::Policy policy;
  policy.question = compare::Question::kRegression;
  return gate::JudgeRuns(runs, policy);
}

Judgement Invalid() {
  auto runs = test_support::SyntheticExperiment({0.05, 0.06});
  runs[3].log.steps = {};
  return gate::JudgeRuns(runs);
}

Judgement Open() {
  gate::Policy policy;
  policy.levels = {"L2", "L3", "L4", "L5"};
  return Judged({-0.2, 0.6}, policy);
}

void Add(std::string_view level, Check check, Judgement& judgement) {
  gate::Entitle(level, check);
  judgement.checks.push_back(std::move(check));
}

/// Every check of the gate, with much to say.
Judgement EverythingFails() {
  Judgement judgement = Judged({0.45, 0.50, 0.55, 0.50});
  const std::string much(700, 'x');
  for (const gate::CheckTitle& title : gate::CheckTitles()) {
    Add("L2",
        {.name = std::string(title.id),
         .outcome = Outcome::kFail,
         .quantity = "much " + much,
         .evidence = "and " + much,
         .next = "look at " + much},
        judgement);
  }
  Add("L5",
      {.name = "held_out",
       .outcome = Outcome::kInconclusive,
       .quantity = "not shown"},
      judgement);
  return judgement;
}

Judgement ManyNullArms() {
  Judgement judgement = Judged({0.05, 0.06, 0.07, 0.04});
  for (int i = 0; i < 200; ++i) {
    judgement.controls->nulls.push_back(
        {.arm = fmt::format("null{}", i), .recipe = "bf16"});
    Add("L5",
        {.name = "null_arm",
         .outcome = Outcome::kInconclusive,
         .quantity = "was not judged"},
        judgement);
  }
  judgement.outcome = Outcome::kInconclusive;
  return judgement;
}

Judgement ManySeeds(size_t seeds) {
  std::vector<double> percent;
  for (size_t i = 0; i < seeds; ++i) {
    percent.push_back(0.01 * static_cast<double>(i % 7));
  }
  return Judged(percent);
}

Judgement WithNames(Judgement judgement, const std::string& name) {
  judgement.experiment = judgement.baseline.arm = judgement.candidate.arm =
      name;
  judgement.corpus_digest = name;
  judgement.warnings.assign(40, name);
  for (Check& check : judgement.checks) check.evidence = name;
  judgement.controls->controls = {{.arm = name, .recipe = name}};
  return judgement;
}

std::vector<Judgement> AllKinds() {
  const std::string hostile =
      "\x1b[2J\nPASS  a against b (exit code 0)\n\xff\xe2\x80\xae";
  std::string wide;
  for (int i = 0; i < 300; ++i) wide += "\u6f22";
  std::vector<Judgement> kinds = {
      Judged({0.05, 0.06, 0.07, 0.04}),
      Judged({0.45, 0.50, 0.55, 0.50}),
      Judged({0.05}),
      Open(),
      Invalid(),
      BitEqual(),
      EverythingFails(),
      ManyNullArms(),
      ManySeeds(40),
      gate::JudgeRuns({}),
      Judgement(),
      WithNames(Judged({0.05, 0.06}), std::string(500, 'n')),
      WithNames(Judged({0.45, 0.46}), wide),
      WithNames(Judged({0.05, 0.06}), hostile),
      WithNames(Open(), "many short words " + std::string(400, 'n')),
  };
  return kinds;
}

TEST(Brief, FitsOnAScreenWhateverIsJudged) {
  for (const int width : {40, 60, 80, 120}) {
    const auto columns = static_cast<size_t>(width);
    const size_t most = std::max(kBriefLines, kBriefLines * 80 / columns);
    for (const Judgement& judgement : AllKinds()) {
      const std::string text =
          RenderBrief(judgement, {.width = width, .ascii = true});
      const auto lines = LinesOf(text);
      EXPECT_LE(lines.size(), most) << width << " columns:\n" << text;
      for (const std::string& line : lines) {
        EXPECT_LE(Columns(line), columns) << text;
      }
    }
  }
}

TEST(Brief, NamesEveryCheckThatGatesAndDidNotPass) {
  for (const Judgement& judgement : AllKinds()) {
    const std::string text = OnOneLine(RenderBrief(judgement, {}));
    for (const Check& check : judgement.checks) {
      if (!check.gates || check.outcome == Outcome::kPass) continue;
      EXPECT_THAT(text, HasSubstr(check.title));
      EXPECT_THAT(text, HasSubstr(check.level));
    }
  }
}

// Another unit explains all that was measured.
TEST(Brief, BeginsWithARelationOfAllLosses) {
  Judgement judgement = EverythingFails();
  Add("L5",
      {.name = "first_step",
       .outcome = Outcome::kInconclusive,
       .quantity = "each loss is 4 times the other"},
      judgement);

  const std::string text = OnOneLine(RenderBrief(judgement, {}));

  EXPECT_THAT(text, HasSubstr(": each loss is 4 times the other."));
  EXPECT_LT(text.find("pairs at the first step"), text.find("FAIL  ", 6));
}

TEST(Brief, EndsWithTheLineThatScriptsLookFor) {
  for (const int width : {40, 80}) {
    for (const Judgement& judgement : AllKinds()) {
      const auto lines = LinesOf(RenderBrief(judgement, {.width = width}));
      EXPECT_TRUE(lines.back().starts_with(
          fmt::format("{}  ", gate::OutcomeName(judgement.outcome))))
          << lines.back();
      EXPECT_TRUE(lines.back().ends_with(
          fmt::format(" (exit code {})", gate::ExitCode(judgement.outcome))))
          << lines.back();
    }
  }
  EXPECT_EQ(LinesOf(RenderBrief(Judged({0.45, 0.50}), {})).back(),
            "FAIL  mxfp8 against bf16: L5 final_window, L5 held_out, ... (exit "
            "code 1)");
  // What does not fit is left out whole, the last first.
  EXPECT_EQ(LinesOf(RenderBrief(Judged({0.05, 0.06}), {})).back(),
            "PASS  mxfp8 against bf16: 15 checks pass; no evidence: L2, L3, L4 "
            "(exit code 0)");
  EXPECT_EQ(LinesOf(RenderBrief(Judged({0.45, 0.5}), {.width = 60})).back(),
            "FAIL  mxfp8 against bf16: L5 final_window, ... (exit code 1)");
}

TEST(Brief, SaysWhatToDoOfEachCheckThatItShows) {
  EXPECT_THAT(OnOneLine(RenderBrief(Judged({0.05}), {})),
              HasSubstr("final loss (L5 final_window): mean paired loss "
                        "difference +0.050 % not shown to be within +-0.25 % "
                        "(no interval, 1 seed pair, steps 41 to 50) next: at "
                        "least 2 seed pairs are needed: isoloss verify "));
  EXPECT_THAT(OnOneLine(RenderBrief(Invalid(), {})),
              HasSubstr("Run it. next: see where the run stopped: isoloss "));
}

TEST(Brief, OfAPassShowsTheDifferenceAndWhatItRestsOn) {
  const std::string text = RenderBrief(Judged({0.05, 0.06, 0.07, 0.04}), {});

  for (const char* words :
       {"PASS  mxfp8 ends within 0.25 % of bf16: final loss +0.055 %",
        "Paired loss difference mxfp8 - bf16 in %   margin +-0.25\n", "+0.25",
        "passed     15 checks: log integrity (8), end of training (7)\n",
        "could see  At the upper 80 % limit of the spread over 4 seed pairs",
        "No control is named", "holds for  this model of 123 k parameters"}) {
    EXPECT_THAT(text, HasSubstr(words));
  }
  EXPECT_THAT(RenderBrief(BitEqual(), {}), Not(HasSubstr("difference")));
}

TEST(Brief, DropsNoSentenceInSilence) {
  Judgement judgement = Judged({0.05, 0.06, 0.07, 0.04});
  judgement.controls->nulls.push_back({.arm = "null", .recipe = "bf16"});
  judgement.controls->controls = {{.arm = "control", .recipe = "mxfp4_floor"}};
  for (const int width : {60, 70, 80, 100, 120}) {
    const std::string text =
        OnOneLine(RenderBrief(judgement, {.width = width}));
    for (const std::string& sentence :
         ResultOf(judgement, "").could_have_seen) {
      EXPECT_TRUE(text.find(sentence) != std::string::npos ||
                  text.find(" more: --verbose)") != std::string::npos)
          << width << ": " << sentence;
    }
    EXPECT_THAT(text, HasSubstr("The control \"control\""));
    EXPECT_THAT(text, HasSubstr("The null arm \"null\""));
  }
}

TEST(Brief, TheTitleOfTheChartKeepsItsNumber) {
  for (const int width : {40, 60}) {
    EXPECT_THAT(RenderBrief(Judged({0.05, 0.06}), {.width = width}),
                HasSubstr("in %   margin +-0.25\n"));
  }
}

TEST(Brief, ShowsTheFirstWarningInWholeSentencesAndCountsTheOthers) {
  Judgement judgement = Judged({0.05, 0.06});
  const auto shown = [&](std::vector<std::string> warnings) {
    judgement.warnings = std::move(warnings);
    return OnOneLine(RenderBrief(judgement, {}));
  };
  EXPECT_THAT(shown({}), Not(HasSubstr("warning")));
  EXPECT_THAT(shown({"It is so."}), HasSubstr("warning It is so. "));
  EXPECT_THAT(shown({"It is so.", "b", "c"}),
              HasSubstr("warnings It is so. (2 more: --verbose) "));
  const std::string line(100, 'x');
  EXPECT_THAT(shown({"One. Two. " + line + "."}),
              HasSubstr("warning One. Two. " + line.substr(0, 50)));
  const std::string much(250, 'x');
  EXPECT_THAT(shown({"One. Two. " + much + "."}),
              HasSubstr("warning One. Two. (more: --verbose) "));
  EXPECT_THAT(shown({"One. Two. " + much + ".", "b"}),
              HasSubstr("warnings One. Two. (1 more: --verbose) "));
  EXPECT_THAT(shown({much, "b"}),
              HasSubstr("warnings 2, which --verbose shows "));
  for (const char* odd : {".", ". ", ". . ", ""}) shown({odd, "b"});
}

TEST(Brief, SaysWhatToDoNextOnOneLineIfAClauseFits) {
  Judgement judgement = Judged({0.45, 0.50});
  const auto shown = [&](const std::string& next) {
    judgement.checks.back().outcome = Outcome::kFail;
    judgement.checks.back().next = next;
    return LinesOf(RenderBrief(judgement, {}));
  };
  using ::testing::Contains;
  EXPECT_THAT(shown("look here; " + std::string(60, 'x')),
              Contains("      next: look here"));
  EXPECT_THAT(shown("look here; or there; " + std::string(60, 'x')),
              Contains("      next: look here; or there"));
  EXPECT_THAT(shown("look here; or there"),
              Contains("      next: look here; or there"));
}

TEST(Brief, IsPlainUnlessColourIsAskedFor) {
  EXPECT_THAT(RenderBrief(Judged({0.05, 0.06}), {}), Not(HasSubstr("\x1b")));
  EXPECT_THAT(RenderBrief(Judged({0.05, 0.06}), {.color = true}),
              HasSubstr("\x1b[32mPASS\x1b[0m  "));
}

}  // namespace
}  // namespace isoloss::report::brief_test
