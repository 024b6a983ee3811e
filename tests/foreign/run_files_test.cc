// Files and folders that trackers of experiments write for themselves.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <string>

#include "isoloss/base/temporary_folder.h"
#include "isoloss/foreign/read.h"
#include "record_log_bytes.h"

namespace isoloss::foreign::run_files_test {
namespace {

using test_support::Fp64;
using test_support::RecordLogBytes;
using test_support::Text;
using test_support::Whole;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

const std::string kWandbHead = {":W&B\xE1\xBE\0", 7};

std::string Item(uint64_t key_field, const std::string& key,
                 const std::string& json) {
  return Text(key_field, key) + Text(16, json);
}

/// A row has a loss, a step of the trainer, and whatever `more` has.
std::string Row(double loss, int step, const std::string& more = "") {
  return Text(
      2, Text(1, Item(1, "train/loss", fmt::format("{}", loss))) +
             Text(1, Item(2, "train/global_step", fmt::format("{}", step))) +
             more);
}

ForeignRun Only(const std::string& content) {
  std::vector<ForeignRun> runs = ParseLog(content);
  EXPECT_EQ(runs.size(), 1u);
  return runs.front();
}

TEST(Wandb, IsReadWithItsConfigurationAndEnd) {
  const std::string config =
      Text(17, Text(4, Text(1, Item(1, "max_steps", "30"))));
  const std::string picture(70'000, 'x');
  const ForeignRun run =
      Only(RecordLogBytes(kWandbHead, {config, Row(5.5, 10), Text(13, picture),
                                       Row(5, 20), Text(18, Whole(1, 1))}));
  EXPECT_EQ(run.format, "wandb");
  EXPECT_EQ(run.step_name, "train/global_step");
  EXPECT_THAT(run.Main(Quantity::kLoss)->step, ElementsAre(10, 20));
  EXPECT_THAT(run.Main(Quantity::kLoss)->value, ElementsAre(5.5, 5));
  EXPECT_EQ(run.steps_planned, 30);
  EXPECT_EQ(run.broke_off, "exit code 1");
}

TEST(Wandb, CountsRowsThatHaveNoNumber) {
  const auto row = [](const char* loss, const std::string& more) {
    return Text(2, Text(1, Item(2, "loss", loss)) + more);
  };
  const auto at = [](uint64_t step) { return Text(2, Whole(1, step)); };
  ForeignRun run = Only(RecordLogBytes(
      kWandbHead, {row("4", ""), row("\"NaN\"", ""), row("3", "")}));
  EXPECT_THAT(run.Main(Quantity::kLoss)->step, ElementsAre(0, 1, 2));
  EXPECT_TRUE(std::isnan(run.Main(Quantity::kLoss)->value[1]));
  EXPECT_EQ(run.step_unit, "log call");
  EXPECT_THAT(run.notes, Contains(HasSubstr("no record of an exit")));

  run = Only(RecordLogBytes(kWandbHead, {row("4", at(5)), row("3", at(10))}));
  EXPECT_THAT(run.Main(Quantity::kLoss)->step, ElementsAre(5, 10));
  EXPECT_EQ(run.step_unit, "step");
}

TEST(Wandb, IsReadUpToWhereItIsCutOrDamaged) {
  std::string file =
      RecordLogBytes(kWandbHead, {Row(5.5, 10), Row(5, 20), Row(4, 30)});
  const ForeignRun cut = Only(file.substr(0, file.size() - 1));
  EXPECT_THAT(cut.Main(Quantity::kLoss)->step, ElementsAre(10, 20));
  EXPECT_THAT(cut.notes, Contains(HasSubstr("ends within record 3")));

  file[file.size() / 2] ^= 1;
  const ForeignRun damaged = Only(file);
  EXPECT_THAT(damaged.Main(Quantity::kLoss)->step, ElementsAre(10));
  EXPECT_THAT(damaged.notes, Contains(HasSubstr("Record 2, at byte")));
}

TEST(SwanLab, IsReadInBothOfItsFormats) {
  const std::string swan = ":SWL\xD6\xE1";
  const auto scalar = [](const std::string& key, uint64_t step, double value) {
    return Text(13, Text(1, key) + Whole(2, step) + Text(5, Fp64(1, value)));
  };
  ForeignRun run = Only(RecordLogBytes(
      swan + '\x02',
      {scalar("train/loss", 1, 2.5), scalar("__swanlab__.cpu", 1, 50),
       scalar("train/loss", 2, INFINITY), Text(11, Whole(1, 2))}));
  EXPECT_EQ(run.series.size(), 1u);
  EXPECT_THAT(run.Main(Quantity::kLoss)->value, ElementsAre(2.5, INFINITY));
  EXPECT_EQ(run.broke_off, "state crashed or aborted");

  run = Only(RecordLogBytes(
      swan + '\x01',
      {R"({"model_type": "Scalar", "data": {"key": "loss", "step": 7,
           "metric": {"index": 7, "data": 2.25}}})"}));
  EXPECT_THAT(run.Main(Quantity::kLoss)->step, ElementsAre(7));
  EXPECT_THAT(run.notes, Contains(HasSubstr("no record of an end")));
}

void Write(const std::filesystem::path& file, const std::string& text) {
  std::filesystem::create_directories(file.parent_path());
  std::ofstream(file, std::ios::binary) << text;
}

TEST(Folders, OfRunsAreRead) {
  const TemporaryFolder dir;
  const std::filesystem::path runs = dir.path() / "mlruns" / "0";
  Write(runs / "a" / "meta.yaml", "status: 4\n");
  Write(runs / "a" / "metrics" / "train" / "loss", "17 2.5 1\n18 nan 2\n19 2");
  Write(runs / "a" / "params" / "max_steps", "9");
  Write(runs / "b" / "meta.yaml", "status: 3\n");
  Write(runs / "b" / "metrics" / "loss", "17 2.5 1\n");
  const std::filesystem::path wandb = dir.path() / "wandb" / "run-1";
  Write(wandb / "run-a.wandb", RecordLogBytes(kWandbHead, {Row(5.5, 10)}));

  ASSERT_EQ(ReadLog(dir.path() / "mlruns").size(), 2u);
  const ForeignRun run = ReadLog(runs / "a").front();
  EXPECT_EQ(run.format, "mlflow");
  EXPECT_THAT(run.Main(Quantity::kLoss)->step, ElementsAre(0, 1, 2));
  EXPECT_EQ(run.broke_off, "status FAILED");
  EXPECT_EQ(run.steps_planned, 9);
  EXPECT_EQ(ReadLog(dir.path() / "wandb").front().format, "wandb");
  EXPECT_TRUE(IsLogFolder(wandb));
  EXPECT_FALSE(IsLogFolder(runs / "a" / "params"));
}

}  // namespace
}  // namespace isoloss::foreign::run_files_test
