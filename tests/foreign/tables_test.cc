// Tables of other programs: CSV, JSON lines, and names that the caller gives.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>

#include "isoloss/base/error.h"
#include "isoloss/foreign/findings.h"
#include "isoloss/foreign/read.h"

namespace isoloss::foreign::tables_test {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

ForeignRun Only(const std::string& text, const ReadOptions& options = {}) {
  std::vector<ForeignRun> runs = ParseLog(text, options);
  EXPECT_EQ(runs.size(), 1u);
  return runs.front();
}

std::string ErrorOf(const std::string& text, const ReadOptions& options = {}) {
  try {
    ParseLog(text, options);
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

const Series& Loss(const ForeignRun& run) {
  const Series* loss = run.Main(Quantity::kLoss);
  EXPECT_NE(loss, nullptr);
  static const Series kNone;
  return loss == nullptr ? kNone : *loss;
}

TEST(Names, ThatTwoColumnsHaveAreSaid) {
  const ForeignRun run = Only("step,loss,loss\n1,2.5,9\n2,2.25,8\n3,2,7\n");

  EXPECT_THAT(Loss(run).value, ElementsAre(2.5, 2.25, 2));
  EXPECT_THAT(run.notes, Contains(HasSubstr("2 columns have the name `loss`")));
}

TEST(JsonLines, WithTwoNumbersOfOneKeyAreRefused) {
  EXPECT_THAT(ErrorOf("{\"step\":1,\"loss\":2,\"loss\":9}\n"
                      "{\"step\":2,\"loss\":2,\"loss\":8}\n"),
              HasSubstr("line 1 gives the numbers 2 and 9 to the key `loss`"));
  EXPECT_EQ(ErrorOf("{\"step\":1,\"loss\":2,\"loss\":2}\n"
                    "{\"step\":2,\"loss\":2,\"loss\":2}\n"),
            "no error");
}

TEST(Names, ThatAreUnknownAreGiven) {
  const std::string table = "it,train_nll,other\n1,2.5,7\n2,2.25,8\n";
  EXPECT_THAT(ErrorOf(table),
              HasSubstr("`it`, `train_nll`, `other`, but none"));
  EXPECT_THAT(ErrorOf(table, {.step = "iter", .loss = ""}),
              HasSubstr("not `iter`"));
  EXPECT_THAT(ErrorOf(table, {.step = "it", .loss = "nll"}),
              HasSubstr("It has `train_nll`, `other`."));
  const ForeignRun run = Only(table, {.step = "it", .loss = "train_nll"});
  EXPECT_THAT(Loss(run).step, ElementsAre(1, 2));
  EXPECT_THAT(Loss(run).value, ElementsAre(2.5, 2.25));
  const ForeignRun tabs = Only("it\ttrain_nll\n3\t2.5\n", {"it", "train_nll"});
  EXPECT_THAT(Loss(tabs).step, ElementsAre(3));
}

TEST(Steps, AreCountedByWhatDoesNotBeginAgain) {
  std::string table = "epoch,step,global_step,loss\n";
  std::string lines;
  std::string unknown;
  for (int i = 0; i < 12; ++i) {
    table += fmt::format("{},{},{},{}\n", i / 4, i % 4, i, 5 - 0.1 * i);
    lines += fmt::format(
        "{{\"iteration\": {}, \"num_updates\": {}, \"loss\": {}}}\n", i % 4 + 1,
        i + 1, 5 - 0.1 * i);
    unknown +=
        fmt::format("{{\"iteration\": {}, \"seen\": {}, \"loss\": {}}}\n",
                    i % 4 + 1, i + 1, 5 - 0.1 * i);
  }
  EXPECT_EQ(Loss(Only(table)).step.size(), 12u);
  EXPECT_EQ(Only(table).step_name, "global_step");
  EXPECT_THAT(Only(table).notes,
              Contains(HasSubstr("`global_step` counts the steps")));
  EXPECT_EQ(Loss(Only(lines)).step.size(), 12u);
  EXPECT_THAT(ErrorOf(unknown), HasSubstr("within an epoch"));
  EXPECT_THAT(ErrorOf(unknown), HasSubstr("`seen`"));
  EXPECT_EQ(Loss(Only(unknown, {.step = "seen", .loss = ""})).step.size(), 12u);
}

// A step within something else is 1 in all rows.
TEST(Steps, AreCountedByWhatRises) {
  std::string table = "step,global_step,loss\n";
  std::string unknown = "step,seen,loss\n";
  for (int i = 1; i <= 12; ++i) {
    table += fmt::format("1,{},{}\n", i, 5 - 0.1 * i);
    unknown += fmt::format("1,{},{}\n", i, 5 - 0.1 * i);
  }
  EXPECT_EQ(Loss(Only(table)).step.size(), 12u);
  EXPECT_THAT(Only(table).notes,
              Contains("`global_step` counts the steps, since `step` is one "
                       "number in all rows."));
  EXPECT_THAT(ErrorOf(unknown), HasSubstr("its steps are all 1, but"));
  EXPECT_THAT(ErrorOf(unknown), HasSubstr("`seen`"));
}

TEST(Steps, OfAResumeGoBackOnce) {
  std::string table = "step,global_tokens,loss\n";
  for (int i = 1; i <= 30; ++i) table += fmt::format("{},{},5\n", i, 8 * i);
  for (int i = 21; i <= 40; ++i) table += fmt::format("{},{},4\n", i, 8 * i);
  const ForeignRun run = Only(table);
  EXPECT_EQ(Loss(run).step.size(), 40u);
  EXPECT_EQ(Loss(run).repeated, 10);
  EXPECT_EQ(run.step_name, "step");
}

/// Rows of steps `first` to `last`, with losses of their own.
std::string Attempt(int first, int last, const std::string& before = "") {
  static int written = 0;
  std::string rows;
  for (int i = first; i <= last; ++i) {
    rows += fmt::format("{}{},{}\n", before, i, 5 - 0.001 * ++written);
  }
  return rows;
}

TEST(Attempts, AreOneRunIfTheLastGotAsFar) {
  const Series whole =
      Loss(Only("step,loss\n" + Attempt(1, 5) + Attempt(1, 60)));
  EXPECT_EQ(whole.step.size(), 60u);
  EXPECT_EQ(whole.attempts, 2);
  EXPECT_EQ(whole.repeated, 0);
  // Of another stride: nothing is left of the first attempt.
  std::string sparse = "step,loss\n" + Attempt(1, 30);
  for (int i = 1; i <= 41; i += 10) sparse += Attempt(i, i);
  EXPECT_THAT(Loss(Only(sparse)).step, ElementsAre(1, 11, 21, 31, 41));
  // Two ranks, one after the other.
  const std::string rank = Attempt(1, 30);
  EXPECT_EQ(Loss(Only("step,loss\n" + rank + rank.substr(0, 100))).attempts, 1);
}

TEST(Attempts, ThatEndEarlierAreOtherRuns) {
  EXPECT_THAT(ErrorOf("step,loss\n" + Attempt(1, 100) + Attempt(1, 60)),
              HasSubstr("begin 2 times with step 1, and the last time they end "
                        "at 60, but before they went to 100"));
  EXPECT_THAT(ErrorOf("step,loss\n" + Attempt(0, 29) + Attempt(0, 23) +
                      Attempt(0, 36) + Attempt(0, 29)),
              HasSubstr("begin 4 times"));
  std::string titan;
  for (const int steps : {30, 20}) {
    for (int i = 1; i <= steps; ++i) {
      titan += fmt::format("step: {}  loss: {}.{}\n", i, steps, i);
    }
  }
  EXPECT_THAT(ErrorOf(titan), HasSubstr("begin 2 times"));
}

TEST(Attempts, AreEpochsWhereTheirNumberRises) {
  const std::string head = "epoch,step,loss\n";
  EXPECT_THAT(ErrorOf(head + Attempt(0, 29, "0,") + Attempt(0, 29, "1,")),
              HasSubstr("within an epoch"));
  EXPECT_EQ(
      Loss(Only(head + Attempt(0, 29, "0,") + Attempt(0, 29, "0,"))).attempts,
      2);
}

TEST(Rows, OfOneStepInARowAreOfRanks) {
  std::string table = "rank,step,loss\n";
  for (int i = 0; i < 20; ++i) {
    table += fmt::format("{},{},{}\n", i % 4, i / 4 + 1, 5 - 0.01 * i);
  }
  const Series loss = Loss(Only(table));
  EXPECT_EQ(loss.repeated, 15);
  EXPECT_EQ(loss.neighbours, 15);
  EXPECT_THAT(WarningsOf(loss), ElementsAre(HasSubstr("ranks or micro")));
  EXPECT_THAT(
      WarningsOf(Loss(Only("step,loss\n" + Attempt(1, 9) + Attempt(5, 9)))),
      IsEmpty());
}

TEST(Steps, MayHaveCommasBetweenThousands) {
  EXPECT_THAT(Loss(Only("step,loss\n\"500\",3\n\"1,000\",2.9\n")).step,
              ElementsAre(500, 1000));
}

TEST(Findings, HoldALargestLossAgainstTheMean) {
  for (const char* names :
       {"loss,max_loss", "loss_mean,loss_max", "train/loss,train/loss_max",
        "loss_mean,max_loss", "train/mean_loss,train/max_loss",
        "loss.mean,loss.max", "loss,max_loss_across_ranks", "Loss,MaxLoss",
        "loss_metrics/global_avg_loss,loss_metrics/global_max_loss",
        "eval_loss,eval_max_loss"}) {
    EXPECT_THAT(
        FindingsOf(Only(fmt::format("step,{}\n1,3,1\n2,2.9,4\n", names))),
        Contains(HasSubstr("at 1 of 2 steps, which cannot be")))
        << names;
  }
  // e^3 is 20.09, and e^2.9 is no 20.
  for (const char* names :
       {"loss,ppl", "lm loss,perplexity", "eval_loss,eval_perplexity",
        "val/loss,valid_ppl"}) {
    EXPECT_THAT(
        FindingsOf(Only(fmt::format("step,{}\n1,3,20.09\n2,2.9,20\n", names))),
        Contains(HasSubstr("is not exp of")))
        << names;
  }
  // One of several losses: e^2 is 7.389.
  EXPECT_THAT(FindingsOf(Only("step,loss,lm_loss,ppl\n1,3,2,7.389\n")),
              Not(Contains(HasSubstr("is not exp of"))));
  // Of others.
  for (const char* names :
       {"loss,eval_max_loss", "loss,max_loss_scale", "loss,eval_perplexity",
        "eval_loss,test_perplexity", "loss,max_tokens"}) {
    EXPECT_THAT(
        FindingsOf(Only(fmt::format("step,{}\n1,3,1\n2,2.9,4\n", names))),
        Not(Contains(HasSubstr("which cannot be"))))
        << names;
  }
}

TEST(Cells, WithoutANumberAreNaNWhereTheRowTellsOfAnUpdate) {
  const Series loss =
      Loss(Only("step,loss,grad_norm,eval_loss\n1,5.0,1.0,\n2,None,1.0,\n"
                "2,None,,4.5\n3,4.9,1.0,\n"));
  EXPECT_THAT(loss.step, ElementsAre(1, 2, 3));
  EXPECT_TRUE(std::isnan(loss.value[1]));
  const Series lines =
      Loss(Only("{\"step\": 1, \"loss\": 5.0, \"lr\": 0.1}\n"
                "{\"step\": 2, \"loss\": null, \"lr\": 0.1}\n"
                "{\"step\": 2, \"loss\": null, \"eval_loss\": 4.5}\n"));
  EXPECT_THAT(lines.step, ElementsAre(1, 2));
  EXPECT_TRUE(std::isnan(lines.value[1]));
}

// From step 7 of 12 on the loss is null, as programs write NaN; that of an
// evaluation, of a picture or between losses at each third step is none.
TEST(Cells, OfNullAreNaNWhereALossWasDue) {
  const auto lines = [](int every, const char* beside) {
    std::string text;
    for (int step = 1; step <= 12; ++step) {
      text += fmt::format(R"({{"step": {}, "loss": {}{}}})"
                          "\n",
                          step, step < 7 && step % every == 0 ? "2.5" : "null",
                          beside);
    }
    return text;
  };
  const auto finite = [](const Series& loss) {
    return std::ranges::count_if(loss.value,
                                 [](double x) { return std::isfinite(x); });
  };
  for (const char* beside : {"", ", \"epoch\": 0.5", ", \"acc\": null"}) {
    const Series loss = Loss(Only(lines(1, beside)));
    EXPECT_EQ(loss.step.size(), 12u) << beside;
    EXPECT_EQ(finite(loss), 6) << beside;
    EXPECT_THAT(Loss(Only(lines(3, beside))).step, ElementsAre(3, 6, 9, 12));
  }
  std::string list = "[";
  for (int step = 1; step <= 6; ++step) {
    list +=
        fmt::format(R"({}{{"step": {}, "loss": {}}})", step == 1 ? "" : ", ",
                    step, step < 4 ? "2" : "\"N/A\"");
  }
  EXPECT_EQ(finite(Loss(Only(list + "]"))), 3);
  EXPECT_EQ(Loss(Only(list + "]")).step.size(), 6u);
  // Within an object, and of an update that was skipped.
  const auto nested = [](int at) {
    std::string text;
    for (int step = 1; step <= 12; ++step) {
      text += fmt::format(
          R"({{"step": {}, "train": {{"loss": {}}}, "skipped_iterations": {}}})"
          "\n",
          step, step == 10 ? "null" : "2.5", step == at ? 1 : 0);
    }
    return Loss(Only(text)).step.size();
  };
  EXPECT_EQ(nested(9), 12u);
  EXPECT_EQ(nested(10), 11u);
  const std::string others =
      "{\"step\": 13, \"loss\": null, \"eval_loss\": 2}\n"
      "{\"step\": 14, \"loss\": null, \"image\": {\"_type\": \"file\"}}\n";
  EXPECT_THAT(Loss(Only(lines(1, "") + others)).step.size(), 12u);
}

// A loss that is not there is unknown, in a row as those that have one.
TEST(Cells, WithoutALossAreUnknownInARowAsOthers) {
  std::string text = "epoch,step,train_loss,val_loss\n";
  for (int step = 0; step < 12; ++step) {
    text += fmt::format("0,{},{},\n", step, step < 9 ? "2.5" : "");
    if (step == 5) text += "0,5,,2.75\n";
  }
  EXPECT_THAT(Only(text).without_loss, ElementsAre(10, 11, 12));
  EXPECT_THAT(Only(text + "0,12,,2.75\n").without_loss,
              ElementsAre(10, 11, 12));
}

TEST(Names, OfJsonAreGivenToo) {
  const std::string lines =
      "{\"it\": 1, \"nll\": 2.5}\n{\"it\": 2, \"nll\": 2.25}\n";
  EXPECT_THAT(ErrorOf(lines), HasSubstr("`it`, `nll`. Name the one"));
  EXPECT_THAT(Loss(Only(lines, {"it", "nll"})).value, ElementsAre(2.5, 2.25));
  const std::string list = "[{\"it\": 1, \"nll\": 2.5},\n {\"it\": 2}]\n";
  EXPECT_THAT(Loss(Only(list, {"it", "nll"})).step, ElementsAre(1));
}

TEST(Names, OfALossReplaceTheUsualOne) {
  const std::string lines =
      "step:  1  loss:  3.5  aux:  0.5\nstep:  2  loss:  3.25  aux:  0.25\n";
  const ForeignRun run = Only(lines, {.step = "", .loss = "aux"});
  EXPECT_EQ(Loss(run).name, "aux");
  EXPECT_EQ(run.Find("loss")->quantity, Quantity::kOther);
  EXPECT_THAT(ErrorOf(lines, {.step = "it", .loss = ""}),
              HasSubstr("torchtitan says itself"));
  const std::string chart =
      "\"Step\",\"a - x\",\"a - x__MIN\",\"a - x__MAX\",\"b - y\","
      "\"b - y__MIN\",\"b - y__MAX\"\n"
      "\"0\",\"1\",\"1\",\"1\",\"2\",\"2\",\"2\"\n";
  EXPECT_EQ(Only(chart, {.step = "", .loss = "y"}).name, "b");
}

TEST(Csv, TellsRowsOfTrainingFromOthers) {
  const ForeignRun run =
      Only("step,split,loss\n1,train,2.5\n1,validation,2.75\n2,train,2.25\n");
  EXPECT_THAT(Loss(run).value, ElementsAre(2.5, 2.25));
  EXPECT_EQ(Loss(run).repeated, 0);
  EXPECT_THAT(run.Main(Quantity::kEvalLoss)->value, ElementsAre(2.75));
}

TEST(Csv, TakesACommaForAPointBetweenSemicolonsOnly) {
  EXPECT_THAT(Loss(Only("step;loss\n1;2,125\n2;2,5\n")).value,
              ElementsAre(2.125, 2.5));
  EXPECT_THAT(ErrorOf("step\tloss\n1\t2,125\n"),
              HasSubstr("Decimals need a point"));
}

TEST(Csv, WithoutAStepSaysWhatItHas) {
  // As pandas writes the number of a row.
  EXPECT_THAT(ErrorOf(",epoch,loss\n0,0,2.5\n1,1,2.25\n"),
              HasSubstr("the columns `epoch`, `loss`, but none"));
  EXPECT_THAT(ErrorOf("loss\n2.5\n2.25\n"), HasSubstr("one column `loss`"));
  EXPECT_THAT(ErrorOf("1,2.5\n2,2.25\n"), HasSubstr("first line is numbers"));
  EXPECT_THAT(ErrorOf("step,loss\n"), HasSubstr("no row below"));
  EXPECT_THAT(ErrorOf("step,loss\n0.5,2.5\n0.75,2.25\n"),
              HasSubstr("none of 2 rows has a whole number"));
  EXPECT_THAT(ErrorOf("step,loss\n,,\n"), HasSubstr("row 2 has another"));
}

TEST(Csv, OfLightningIsKnownInOldVersionsAndByItsSteps) {
  const ForeignRun old = Only("train_loss,step,epoch\n2.5,49,0\n2.25,99,0\n");
  EXPECT_EQ(old.format, "lightning");
  EXPECT_THAT(Loss(old).step, ElementsAre(50, 100));
  const ForeignRun later =
      Only("train_loss,epoch,step,val_loss\n2.5,0,49,\n2.25,0,99,\n,0,150,2\n");
  EXPECT_EQ(later.format, "lightning");
  EXPECT_THAT(Loss(later).step, ElementsAre(50, 100));
  EXPECT_THAT(later.Main(Quantity::kEvalLoss)->step, ElementsAre(151));
  // Someone's own table, with steps from 1.
  const ForeignRun own = Only("epoch,loss,step\n0,2.5,50\n0,2.25,100\n");
  EXPECT_EQ(own.format, "csv");
  EXPECT_THAT(Loss(own).step, ElementsAre(50, 100));
}

TEST(Csv, KeepsColumnsOfOneNameApart) {
  const ForeignRun run = Only("step,loss,loss\n1,2.5,3.5\n");
  EXPECT_THAT(Loss(run).value, ElementsAre(2.5));
  EXPECT_THAT(run.Find("loss (2)")->value, ElementsAre(3.5));
  const auto runs = ParseLog(
      "\"Step\",\"a - loss\",\"a - loss__MIN\",\"a - loss__MAX\",\"a - loss\","
      "\"a - loss__MIN\",\"a - loss__MAX\"\n"
      "\"0\",\"1\",\"1\",\"1\",\"2\",\"2\",\"2\"\n");
  ASSERT_EQ(runs.size(), 2u);
  EXPECT_EQ(runs[1].name, "a (2)");
  EXPECT_EQ(Loss(runs[1]).averaging, Averaging::kInstant);
}

TEST(WandbChart, OfRunsPutTogetherHasNoRunInItsNames) {
  const ForeignRun run = Only(
      "\"Step\",\"train_loss\",\"train_loss__MIN\",\"train_loss__MAX\"\n"
      "\"0\",\"2.5\",\"2.25\",\"2.75\"\n\"10\",\"2\",\"2\",\"2\"\n");
  EXPECT_EQ(run.format, "wandb_chart");
  EXPECT_THAT(Loss(run).value, ElementsAre(2.5, 2));
  EXPECT_EQ(Loss(run).averaging, Averaging::kBucketMean);
}

TEST(WandbRuns, AreRefusedInEachShape) {
  for (const char* text :
       {"\"Name\",\"Runtime\",\"End Time\",\"step\"\n\"a\",\"3\",\"\",\"1\"\n",
        "\"Name\",\"Created\",\"train/loss\"\n\"a\",\"2026\",\"1.5\"\n",
        "lr,_runtime,_step,_wandb,loss\n0.1,2.5,35,{'runtime': 3},1.5\n"}) {
    EXPECT_THAT(ErrorOf(text), HasSubstr("a run in each row")) << text;
  }
}

TEST(JsonLines, TellTheStepByMostLines) {
  const ForeignRun run = Only(
      "{\"event\": \"config\", \"steps\": 1000, \"lr\": 0.5}\n"
      "{\"step\": 1, \"loss\": 2.5, \"mode\": \"train\"}\n"
      "{\"step\": 1, \"loss\": 2.75, \"mode\": \"eval\"}\n"
      "{\"step\": 2, \"loss\": 2.25, \"mode\": \"train\", \"picture\": "
      "{\"_type\": \"image-file\", \"size\": 192147}}\n");
  EXPECT_THAT(Loss(run).step, ElementsAre(1, 2));
  EXPECT_THAT(run.Find("eval/loss")->value, ElementsAre(2.75));
  EXPECT_EQ(run.series.size(), 2u);
  EXPECT_THAT(run.notes, ElementsAre(HasSubstr("1 lines have no `step`")));
}

TEST(JsonLines, PreferAnIterationToALogCall) {
  const ForeignRun run = Only(
      "{\"_step\": 0, \"global_step\": 10, \"loss\": 2.5}\n"
      "{\"_step\": 1, \"global_step\": 20, \"loss\": 2.25}\n");
  EXPECT_THAT(Loss(run).step, ElementsAre(10, 20));
  EXPECT_THAT(run.notes, IsEmpty());
}

TEST(Refusal, SaysWhatAFileIs) {
  const std::string zero(1, '\0');
  EXPECT_THAT(ErrorOf("\x89PNG\r\n" + zero), HasSubstr("byte 7 is 0"));
  EXPECT_THAT(ErrorOf("\x1F\x8B\x08"), HasSubstr("gunzip"));
  EXPECT_THAT(ErrorOf("SQLite format 3" + zero), HasSubstr("MLflow 3"));
  EXPECT_THAT(ErrorOf("{\"log_history\": [{\"step\": 1, \"lo"),
              HasSubstr("ends within a value, after 32 bytes"));
  EXPECT_THAT(ErrorOf("{\"log_history\": []}"), HasSubstr("0 rows"));
  EXPECT_THAT(ErrorOf("[1, 2]"), HasSubstr("hold no value"));
  EXPECT_THAT(ErrorOf(" \n"), HasSubstr("the file is empty"));
  EXPECT_THAT(ErrorOf("{\"lm loss\": {\"end_step\": 9, \"values\": {}}}"),
              HasSubstr("`lm loss` has `values`"));
}

TEST(Refusal, OfSourcesAndDocumentsThatShowALog) {
  for (const char* mark : {"// ", "# ", "* ", "  \"", "> ", "- `"}) {
    EXPECT_THAT(ErrorOf(std::string(mark) + "iter 0: loss 4.2, time 28.9ms\n"),
                HasSubstr("hold no value"))
        << mark;
  }
  EXPECT_THAT(ErrorOf("  text = \"step: 10  loss: 3.5\"\n"),
              HasSubstr("hold no value"));
}

TEST(Text, MayBeginWithAByteOrderMark) {
  EXPECT_THAT(Loss(Only("\xEF\xBB\xBF{\"log_history\": [{\"step\": 5, "
                        "\"loss\": 2.5}]}\r\n"))
                  .step,
              ElementsAre(5));
}

TEST(Log, HasNamesInBounds) {
  std::string line = "{\"step\": 1";
  for (size_t i = 0; i <= kMostSeries; ++i) {
    line += ", \"k" + std::to_string(i) + "\": 1";
  }
  EXPECT_THAT(ErrorOf(line + "}\n{\"step\": 2}\n"),
              HasSubstr("more than 100000 names"));
}

// At each of these steps a loss was due. Of a loss at every second step the
// others have none.
TEST(Table, TellsOfStepsWithoutALoss) {
  std::string text = "step,loss,grad_norm\n";
  for (int step = 1; step <= 12; ++step) {
    const bool known = step != 5 && step < 11;
    text += std::to_string(step) + (known ? ",2.5" : ",") + ",1.25\n";
  }
  EXPECT_THAT(Only(text).without_loss, ElementsAre(5, 11, 12));

  text = "step,loss,grad_norm,eval_loss\n";
  for (int step = 1; step <= 12; ++step) {
    text += std::to_string(step) + (step % 2 == 0 ? ",2.5" : ",") + ",1.25,\n";
  }
  text += "13,,,2.75\n14,,,2.5\n";
  EXPECT_THAT(Only(text).without_loss, IsEmpty());

  text.clear();
  for (int step = 1; step <= 12; ++step) {
    text += "{\"step\": " + std::to_string(step) + ", \"grad_norm\": 1.5" +
            (step == 7 ? "" : ", \"loss\": 2.5") + "}\n";
  }
  EXPECT_THAT(Only(text).without_loss, ElementsAre(7));
}

}  // namespace
}  // namespace isoloss::foreign::tables_test
