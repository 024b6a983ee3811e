#include "isoloss/report/live_view.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "support/synthetic_runs.h"

namespace isoloss::report::live_view_test {
namespace {

using document::TextStyle;

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::SizeIs;

LiveRun RunIn(RunState state) {
  LiveRun run;
  run.name = "mxfp8-seed1";
  run.state = state;
  run.log = test_support::SyntheticRun(true, 1, 0).log;
  run.log.provenance.steps_planned = 200;
  run.log.events = {{.unix_seconds = 3661, .kind = "start", .text = "so\nso"}};
  return run;
}

TEST(LiveView, ShowsStepLossSpeedTimeLeftAndEvents) {
  const auto lines = DrawLiveRuns({RunIn(RunState::kRunning)}, 40, {});

  // 50 of 200 steps; 1/8 s each leaves 150 / 8 = 18.75 s; 1024 tokens each.
  EXPECT_THAT(lines, Contains("mxfp8-seed1"));
  EXPECT_THAT(lines, Contains(HasSubstr("step 50 of 200  loss ")));
  EXPECT_THAT(lines, Contains(AllOf(HasSubstr("25 %"),
                                    HasSubstr("8,192 token/s  0:19 left"))));
  EXPECT_THAT(lines, Contains(HasSubstr("01:01:01  start       so so")));
}

TEST(LiveView, DrawsLessRatherThanMoreRows) {
  const std::vector<LiveRun> runs(3, RunIn(RunState::kRunning));

  for (const int rows : {60, 40, 24}) {
    EXPECT_LE(DrawLiveRuns(runs, rows, {}).size(), static_cast<size_t>(rows));
  }
}

TEST(LiveView, AJobIsTheSumOfItsRuns) {
  LiveRun finished = RunIn(RunState::kFinished);
  finished.name = "bf16-seed1";

  const LiveJob job = JobOf({"bf16-seed1", "mxfp8-seed1", "a", "b"}, 200,
                            {finished, RunIn(RunState::kRunning)});

  EXPECT_EQ(job.runs, 4U);
  EXPECT_EQ(job.finished, 1U);
  EXPECT_THAT(job.waiting, ::testing::ElementsAre("a", "b"));
  // 200 and 50 of 800 steps; the other 550 at 1/8 s each.
  EXPECT_DOUBLE_EQ(job.done, 250.0 / 800);
  EXPECT_DOUBLE_EQ(job.seconds_left.value(), 550.0 / 8);
  EXPECT_EQ(JobLine(job, 80), "31 % done, 1 of 4 runs finished, 1:09 left");
  EXPECT_EQ(JobLine(job, 30), "31 %, 1 of 4 runs, 1:09 left");
  EXPECT_EQ(JobLine(job, 16), "31 %, 1:09 left");
  EXPECT_EQ(JobLine(job, 9), "1:09 left");
  EXPECT_THAT(LiveLine({finished}, job), HasSubstr("; 31 % done"));
  const auto lines = DrawLiveRuns({finished}, 40, {}, job);
  EXPECT_EQ(lines[0], JobLine(job, 80));
  EXPECT_EQ(lines[1], "2 waiting: a, b");
}

TEST(LiveView, AJobGoesOnWithWhatWasInterrupted) {
  const LiveJob job =
      JobOf({"mxfp8-seed1"}, 200, {RunIn(RunState::kInterrupted)});

  EXPECT_EQ(job.finished, 0U);
  EXPECT_THAT(job.waiting, ::testing::ElementsAre("mxfp8-seed1"));
  EXPECT_DOUBLE_EQ(job.done, 0.25);
}

TEST(LiveView, AJobWithoutARunUnderWayNamesNoTime) {
  const LiveJob job = JobOf({"a"}, 200, {});

  EXPECT_FALSE(job.seconds_left.has_value());
  EXPECT_EQ(JobLine(job, 80), "0 % done, 0 of 1 runs finished");
}

TEST(LiveView, NarrowLinesSayLessAndNeverCutNumbers) {
  TextStyle style;
  style.width = 29;

  const auto lines = DrawLiveRuns({RunIn(RunState::kRunning)}, 40, style);

  EXPECT_THAT(lines, Contains(::testing::MatchesRegex(
                         "  step 50/200  loss [0-9]\\.[0-9]{4}")));
  EXPECT_THAT(lines, Contains(::testing::EndsWith("  0:19 left")));
}

TEST(LiveView, RunsThatHaveEndedAreALineEach) {
  auto unreadable = RunIn(RunState::kUnreadable);
  unreadable.note = "it is damaged";

  const auto lines =
      DrawLiveRuns({RunIn(RunState::kFinished), unreadable}, 40, {});

  ASSERT_THAT(lines, SizeIs(2));
  EXPECT_THAT(lines[0], AllOf(HasSubstr("finished"), HasSubstr("step 50"),
                              Not(HasSubstr("left"))));
  EXPECT_THAT(lines[1], HasSubstr("it is damaged"));
}

TEST(LiveView, AsciiIsAsciiAndNoLineIsWiderThanAsked) {
  TextStyle style{.width = 60, .color = false, .ascii = true};
  auto run = RunIn(RunState::kRunning);
  run.log.events[0].text = std::string(500, 'x');
  run.quiet_seconds = 100;

  for (const std::string& line : DrawLiveRuns({run}, 40, style)) {
    EXPECT_LE(line.size(), 60) << line;
    for (const char c : line) EXPECT_GE(c, ' ');
  }
}

TEST(LiveView, NoLineIsWiderThanANarrowTerminal) {
  auto ended = RunIn(RunState::kFinished);
  ended.name = "a-name-that-is-longer-than-the-terminal";
  for (const int width : {19, 29, 39}) {
    const TextStyle style{.width = width, .color = true, .ascii = true};
    for (const std::string& line :
         DrawLiveRuns({RunIn(RunState::kRunning), ended}, 40, style)) {
      EXPECT_EQ(line, ClipLine(line, width)) << line;
    }
  }
}

TEST(ClipLine, CountsCharactersAndKeepsColours) {
  EXPECT_EQ(ClipLine("abc", 2), "ab");
  EXPECT_EQ(ClipLine("░█░", 2), "░█");
  EXPECT_EQ(ClipLine("\x1b[1mabc\x1b[0m", 2), "\x1b[1mab\x1b[0m");
}

TEST(LiveView, SaysWhenNothingNewCameForLong) {
  auto run = RunIn(RunState::kRunning);
  run.quiet_seconds = 31;  // 10 steps take 1.25 s: the limit is 30 s
  EXPECT_THAT(DrawLiveRuns({run}, 40, {})[0], HasSubstr("killed?"));

  run.quiet_seconds = 29;
  EXPECT_THAT(DrawLiveRuns({run}, 40, {})[0], Not(HasSubstr("killed?")));
}

TEST(LiveView, ARunWithoutRowsIsDrawnToo) {
  LiveRun run;
  run.name = "r";

  EXPECT_THAT(DrawLiveRuns({run}, 40, {}), Not(IsEmpty()));
  EXPECT_THAT(LiveLine({run}), HasSubstr("r: starting, step 0"));
}

TEST(StateOf, FollowsEventsAndFiles) {
  runlog::RunLog log;
  EXPECT_EQ(StateOf(log, true), RunState::kStarting);
  log.steps.step = {1};
  EXPECT_EQ(StateOf(log, true), RunState::kRunning);
  EXPECT_EQ(StateOf(log, false), RunState::kFinished);
  log.events = {{.unix_seconds = 0, .kind = "interrupt", .text = ""}};
  EXPECT_EQ(StateOf(log, true), RunState::kInterrupted);
  log.events.push_back({.unix_seconds = 0, .kind = "resume", .text = ""});
  EXPECT_EQ(StateOf(log, true), RunState::kRunning);
  log.events.push_back({.unix_seconds = 0, .kind = "abort", .text = ""});
  EXPECT_EQ(StateOf(log, false), RunState::kAborted);
}

TEST(PaceOf, IsOfTheLastSteps) {
  runlog::StepColumns steps;
  for (int64_t i = 1; i <= 30; ++i) {
    steps.tokens_seen.push_back(100 * i);
    steps.step_seconds.push_back(i <= 10 ? 1000.0 : 0.5);
  }

  const auto pace = PaceOf(steps);

  ASSERT_TRUE(pace.has_value());
  EXPECT_EQ(pace->step_seconds, 0.5);
  EXPECT_EQ(pace->tokens_per_second, 200);
  EXPECT_FALSE(PaceOf({}).has_value());
}

}  // namespace
}  // namespace isoloss::report::live_view_test
