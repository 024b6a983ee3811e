#include "isoloss/runlog/export.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <nlohmann/json.hpp>

#include "isoloss/base/error.h"
#include "runlog/sample_log.h"

namespace isoloss::runlog::export_test {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::vector<std::string> Lines(const RunLog& log, const std::string& group,
                               ExportFormat format) {
  std::vector<std::string> lines;
  ExportGroup(log, group, format, [&](std::string_view line) {
    EXPECT_TRUE(line.ends_with('\n'));
    lines.emplace_back(line.substr(0, line.size() - 1));
  });
  return lines;
}

/// Cells of a line in which none is quoted.
std::vector<std::string> Cells(const std::string& line) {
  std::vector<std::string> cells(1);
  for (const char c : line) {
    if (c == ',') {
      cells.emplace_back();
    } else {
      cells.back() += c;
    }
  }
  return cells;
}

/// Values that a careless printer loses, and some that it does not.
std::vector<double> HardDoubles() {
  using Limits = std::numeric_limits<double>;
  std::vector<double> values = {0.0,
                                -0.0,
                                5.0,
                                -3.0,
                                0.1,
                                1.0 / 3.0,
                                1e15,
                                1e16,
                                1e23,
                                123456789012345680.0,
                                9007199254740993.0,
                                Limits::denorm_min(),
                                -Limits::denorm_min(),
                                Limits::min(),
                                Limits::max(),
                                Limits::lowest(),
                                std::nextafter(1.0, 2.0),
                                std::nextafter(1.0, 0.0)};
  // A walk over exponents and mantissas.
  uint64_t bits = 0x0123456789ABCDEF;
  for (int i = 0; i < 2000; ++i) {
    bits = bits * 6364136223846793005U + 1442695040888963407U;
    const double value = std::bit_cast<double>(bits);
    if (std::isfinite(value)) values.push_back(value);
  }
  return values;
}

RunLog LogOf(const std::vector<double>& losses) {
  RunLog log;
  for (size_t i = 0; i < losses.size(); ++i) {
    log.steps.step.push_back(static_cast<int64_t>(i) + 1);
  }
  log.steps.loss_nats = losses;
  return log;
}

TEST(Export, CsvNumbersReadBackToTheSameBits) {
  const std::vector<double> values = HardDoubles();

  const auto lines = Lines(LogOf(values), "steps", ExportFormat::kCsv);

  ASSERT_EQ(lines.size(), values.size() + 1);
  EXPECT_EQ(lines[0], "step[step],loss_nats[nat]");
  for (size_t i = 0; i < values.size(); ++i) {
    const std::string cell = Cells(lines[i + 1]).at(1);
    EXPECT_EQ(std::bit_cast<uint64_t>(std::strtod(cell.c_str(), nullptr)),
              std::bit_cast<uint64_t>(values[i]))
        << cell;
  }
}

TEST(Export, JsonNumbersReadBackToTheSameBitsAndAsFloatingPoint) {
  const std::vector<double> values = HardDoubles();

  const auto lines = Lines(LogOf(values), "steps", ExportFormat::kJsonl);

  ASSERT_EQ(lines.size(), values.size());
  for (size_t i = 0; i < values.size(); ++i) {
    const auto row = nlohmann::json::parse(lines[i]);
    ASSERT_TRUE(row["loss_nats"].is_number_float()) << lines[i];
    EXPECT_EQ(std::bit_cast<uint64_t>(row["loss_nats"].get<double>()),
              std::bit_cast<uint64_t>(values[i]))
        << lines[i];
  }
}

TEST(Export, WhatIsNotFiniteHasAName) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  const RunLog log = LogOf({std::nan(""), kInfinity, -kInfinity});

  EXPECT_THAT(Lines(log, "steps", ExportFormat::kCsv),
              ElementsAre("step[step],loss_nats[nat]", "1,NaN", "2,Infinity",
                          "3,-Infinity"));
  EXPECT_THAT(Lines(log, "steps", ExportFormat::kJsonl),
              ElementsAre(R"({"step":1,"loss_nats":"NaN"})",
                          R"({"step":2,"loss_nats":"Infinity"})",
                          R"({"step":3,"loss_nats":"-Infinity"})"));
}

TEST(Export, AxesAreNamedByLabelsWhereThereAreSomeElseNumbered) {
  RunLog log;
  log.parameters = {.step = {1},
                    .count = 2,
                    .names = {"a.weight", "b,\"c\""},
                    .grad_norm = {0.5, 1.5},
                    .update_ratio = {}};
  log.moe.step = {1};
  log.moe.layers = 2;
  log.moe.experts = 2;
  log.moe.tokens_per_expert = {1, 2, 3, 4};

  EXPECT_THAT(Lines(log, "parameters", ExportFormat::kCsv),
              ElementsAre("step[step],name,grad_norm[1]", "1,a.weight,0.5",
                          "1,\"b,\"\"c\"\"\",1.5"));
  EXPECT_THAT(
      Lines(log, "parameters", ExportFormat::kJsonl),
      ElementsAre(R"({"step":1,"grad_norm":{"a.weight":0.5,"b,\"c\"":1.5}})"));
  EXPECT_THAT(
      Lines(log, "moe", ExportFormat::kCsv),
      ElementsAre("step[step],tokens_per_expert.0.0[token],"
                  "tokens_per_expert.0.1[token],tokens_per_expert.1.0[token],"
                  "tokens_per_expert.1.1[token]",
                  "1,1,2,3,4"));
  EXPECT_THAT(Lines(log, "moe", ExportFormat::kJsonl),
              ElementsAre(R"({"step":1,"tokens_per_expert":[[1,2],[3,4]]})"));
}

TEST(Export, TensorsAsCsvHaveALineForEachStepAndName) {
  RunLog log;
  log.tensors.step = {3, 9};
  log.tensors.count = 2;
  log.tensors.names = {"a_output", "b_output"};
  log.tensors.digest = {1, 2, 3, 4};
  log.tensors.statistics[kStat_l2_norm] = {0.5, 1.5, 2.5, 3.5};
  std::vector<std::string> lines;

  const size_t rows =
      ExportGroup(log, "tensors", ExportFormat::kCsv,
                  [&](std::string_view line) { lines.emplace_back(line); });

  EXPECT_EQ(rows, 4u);
  EXPECT_THAT(lines, ElementsAre("step[step],name,digest[1],l2_norm[1]\n",
                                 "3,a_output,1,0.5\n", "3,b_output,2,1.5\n",
                                 "9,a_output,3,2.5\n", "9,b_output,4,3.5\n"));
}

TEST(Export, TextIsQuotedAsEachFormatAsks) {
  RunLog log;
  log.events = {{.unix_seconds = 0.5, .kind = "", .text = "a \"b\",\nc → ∞"}};

  EXPECT_THAT(
      Lines(log, "events", ExportFormat::kCsv),
      ElementsAre("unix_seconds[s],kind,text", "0.5,,\"a \"\"b\"\",\nc → ∞\""));
  EXPECT_THAT(Lines(log, "events", ExportFormat::kJsonl),
              ElementsAre(R"({"unix_seconds":0.5,"kind":"",)"
                          R"("text":"a \"b\",\nc → ∞"})"));
}

TEST(Export, EveryGroupOfAFullLogHasRowsOfEqualWidth) {
  const RunLog log = SampleLog();
  std::vector<std::string> names;
  for (const GroupRows& group : GroupsOf(log)) {
    names.push_back(group.name);
    EXPECT_GT(group.rows, 0) << group.name;
    const auto csv = Lines(log, group.name, ExportFormat::kCsv);
    const size_t lines_a_row =
        group.name == "parameters" ? log.parameters.names.size()
        : group.name == "tensors"  ? log.tensors.names.size()
                                   : 1;
    EXPECT_EQ(csv.size(), group.rows * lines_a_row + 1) << group.name;
    for (const std::string& line : csv) {
      EXPECT_EQ(Cells(line).size(), Cells(csv[0]).size()) << group.name;
    }
    const auto json = Lines(log, group.name, ExportFormat::kJsonl);
    EXPECT_EQ(json.size(), group.rows) << group.name;
    for (const std::string& line : json) {
      EXPECT_TRUE(nlohmann::json::accept(line)) << line;
    }
  }
  EXPECT_THAT(names,
              ElementsAre("graph", "graph_inputs", "recipe", "recipe_phases",
                          "steps", "eval", "parameters", "tensors", "moe",
                          "exchange", "exchange_pairs", "events"));
}

TEST(Export, AGroupWithoutRowsIsAHeadWithoutLines) {
  EXPECT_THAT(Lines({}, "moe", ExportFormat::kCsv), ElementsAre("step[step]"));
  EXPECT_THAT(Lines({}, "moe", ExportFormat::kJsonl), ElementsAre());
}

TEST(Export, AnUnknownGroupIsRefusedWithTheKnownOnes) {
  try {
    Lines({}, "parameter", ExportFormat::kCsv);
    FAIL() << "exported";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kConfig);
    EXPECT_THAT(error.what(), HasSubstr("Did you mean `parameters`?"));
    EXPECT_THAT(error.what(), HasSubstr("exchange_pairs"));
  }
}

}  // namespace
}  // namespace isoloss::runlog::export_test
