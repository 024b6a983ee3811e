// Every key of an experiment file: in its document with its default, and with
// place, key, value and rule in the message on a value that it can't have.
#include "isoloss/train/experiment_keys.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "experiment_text.h"
#include "isoloss/train/experiment.h"

namespace isoloss::train::experiment_keys_test {
namespace {

using testing::AllOf;
using testing::AnyOf;
using testing::HasSubstr;
using testing::StartsWith;

/// The name of an arm stands for the NAME of its keys.
std::string OfArm(std::string dotted) {
  const size_t name = dotted.find("NAME");
  if (name != std::string::npos) dotted.replace(name, 4, "mxfp8");
  return dotted;
}

/// What reads a key: those of [data] depend on the source, routing.replay on
/// the mode.
std::vector<std::string> Neighbours(const ExperimentKey& key) {
  if (key.section == "data" && key.name != "source") {
    if (key.name == "token_type") {
      return {"data={source = 'tokens', paths = ['x']}"};
    }
    if (key.name == "paths" || key.name == "include") {
      return {"data={source = 'files', paths = ['x']}"};
    }
    return {"data={source = 'synthetic'}"};
  }
  if (key.name == "replay") return {"routing.mode=replay"};
  if (key.name == "perturb_draw") return {"arms.mxfp8.perturb=one_ulp"};
  return {};
}

bool IsNumber(const ExperimentKey& key) {
  const std::string& value = key.default_value;
  return key.name == "decay_ratio" ||
         (!value.empty() &&
          value.find_first_not_of("0123456789.e+-") == std::string::npos);
}

TEST(ExperimentKeys, AllSectionsAreListed) {
  std::vector<std::string> names = ExperimentKeyNames();

  EXPECT_THAT(names,
              testing::IsSupersetOf(
                  {"name", "model.preset", "model.mscale", "data.token_type",
                   "data.noise_levels", "data.include", "train.steps",
                   "parallel.expert_padding", "log.routing", "routing.replay",
                   "arms.NAME.exchange", "arms.NAME.include", "gate.policy"}));
  std::sort(names.begin(), names.end());
  EXPECT_EQ(std::adjacent_find(names.begin(), names.end()), names.end());
}

TEST(ExperimentKeys, AValueOfAnotherTypeIsRefusedWithPlaceKeyAndRule) {
  for (const ExperimentKey& key : ExperimentKeys()) {
    const std::string dotted = OfArm(key.Dotted());
    SCOPED_TRACE(dotted);
    // No key takes a date.
    std::vector<std::string> overrides = Neighbours(key);
    overrides.push_back(dotted + "=1979-05-27");
    const std::string complaint = ErrorOf(kText, overrides);

    EXPECT_THAT(complaint,
                AllOf(StartsWith("--set " + dotted + "=1979-05-27: `" + dotted +
                                 "` is a date or time, but must be "),
                      testing::EndsWith(".")));
    EXPECT_LT(complaint.size(), 300u);
  }
}

TEST(ExperimentKeys, ANumberOutOfItsRangeIsRefusedWithValueAndRange) {
  size_t numbers = 0;
  for (const ExperimentKey& key : ExperimentKeys()) {
    if (!IsNumber(key)) continue;
    ++numbers;
    const std::string dotted = OfArm(key.Dotted());
    for (const std::string value : {"-7", "1e300", "inf", "nan"}) {
      SCOPED_TRACE(dotted + "=" + value);
      std::vector<std::string> overrides = Neighbours(key);
      overrides.push_back(dotted + "=" + value);
      const std::string complaint = ErrorOf(kText, overrides);

      EXPECT_THAT(complaint,
                  AllOf(HasSubstr(": `" + dotted + "` is "),
                        AnyOf(HasSubstr("but must be an integer from "),
                              HasSubstr("but must be a number in "),
                              HasSubstr("but must be one of "))));
      EXPECT_LT(complaint.size(), 300u);
    }
  }
  EXPECT_GT(numbers, 50u);
}

TEST(ExperimentKeys, APlaceInTheFileIsNamedWithItsLine) {
  EXPECT_THAT(ErrorOf(std::string(kText) + "[log]\neval_every = 0\n"),
              testing::MatchesRegex(
                  "experiment.toml:15:14: `log.eval_every` is 0, .*"));
  // Rules that join several keys of the model.
  for (const char* line : {"dim = 0", "top_k = 99", "qk_rope_head_dim = 3",
                           "n_dense_layers = 1000", "num_expert_groups = 3"}) {
    SCOPED_TRACE(line);
    std::string text(kText);
    const std::string model = "[model]\n";
    const size_t place = text.find(model);
    ASSERT_NE(place, std::string::npos);
    // The same key may stand there already.
    const std::string key =
        std::string(line).substr(0, std::string(line).find(' '));
    const size_t other = text.find("\n" + key + " =");
    if (other != std::string::npos) {
      text.erase(other, text.find('\n', other + 1) - other);
    }
    text.insert(place + model.size(), std::string(line) + "\n");
    const auto number =
        std::count(
            text.begin(),
            text.begin() + static_cast<std::ptrdiff_t>(place + model.size()),
            '\n') +
        1;

    EXPECT_THAT(ErrorOf(text),
                StartsWith(fmt::format("experiment.toml:{}:{}: `model.{}` is ",
                                       number, key.size() + 4, key)));
  }
}

TEST(ExperimentKeys, AKeyOfAnotherSectionIsNamed) {
  for (const auto& [given, meant] :
       std::vector<std::pair<std::string, std::string>>{
           {"steps=5", "`train.steps`"},
           {"stpes=5", "`train.steps`"},
           {"train.top_k=5", "`model.top_k`"},
           {"log.lr=1", "`train.lr`"},
           {"parallel.recipe=fp32", "`arms.NAME.recipe`"}}) {
    SCOPED_TRACE(given);
    EXPECT_THAT(ErrorOf(kText, {given}),
                AllOf(HasSubstr("unknown key"),
                      HasSubstr("Did you mean " + meant + "?")));
  }
}

TEST(ExperimentKeys, AListWithoutBracketsIsAnsweredWithTheList) {
  EXPECT_THAT(ErrorOf(kText, {"train.seeds=1,2"}),
              HasSubstr("A list stands in brackets: --set "
                        "'train.seeds=[1,2]'."));
  EXPECT_THAT(ErrorOf(kText, {"train.seeds=[]"}),
              HasSubstr("`train.seeds` is [], but must be a list"));
  EXPECT_THAT(ErrorOf(kText, {"train.steps=[5, \"x\"]"}),
              HasSubstr("`train.steps` is [5, \"x\"], but must be"));
}

/// Rows of a table of Markdown: the first cell's keys, and the whole row.
std::vector<std::string> Rows(const std::string& document) {
  std::vector<std::string> rows;
  std::istringstream lines(document);
  for (std::string line; std::getline(lines, line);) {
    if (line.starts_with("|")) rows.push_back(line);
  }
  return rows;
}

TEST(ExperimentKeys, TheDocumentHasEachWithItsDefault) {
  std::ifstream file(ISOLOSS_SOURCE_DIR "/docs/experiment.md");
  std::stringstream document;
  document << file.rdbuf();
  const std::vector<std::string> rows = Rows(document.str());
  // A key's row begins with its name, and its default is the second cell. The
  // keys of an arm stand where those of [parallel] do, or have none, and those
  // of [tuning.scaled] where those of [tuning] do.
  for (const ExperimentKey& key : ExperimentKeys()) {
    if (key.section.empty() || key.name == "preset") continue;
    const bool shared = key.section == "arms.NAME" && key.name != "recipe" &&
                        key.name != "include" && key.name != "exclude";
    const bool of_sweep =
        key.section == "tuning.scaled" && key.name != "parameters";
    if (shared || of_sweep) continue;
    SCOPED_TRACE(key.Dotted());
    const bool dotted = key.section == "log" || key.section == "gate" ||
                        key.section.starts_with("tuning");
    const std::string name = dotted ? key.Dotted() : key.name;
    const std::string value =
        key.default_value.empty() ? "" : "`" + key.default_value + "`";
    const std::string beginning =
        fmt::format("| `{}` | {}{}| ", name, value, value.empty() ? "" : " ");
    EXPECT_TRUE(std::any_of(
        rows.begin(), rows.end(),
        [&](const std::string& row) { return row.starts_with(beginning); }))
        << "no row begins with " << beginning;
  }
}

}  // namespace
}  // namespace isoloss::train::experiment_keys_test
