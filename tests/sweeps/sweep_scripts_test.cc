#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <string>
#include <vector>

#include "isoloss/base/error.h"
#include "isoloss/base/text_file.h"
#include "isoloss/sweeps/job_script.h"
#include "isoloss/sweeps/scripts.h"
#include "isoloss/sweeps/slurm.h"
#include "isoloss/system/child_process.h"

namespace isoloss::sweeps::sweep_scripts_test {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

Sweep SweepOf(Engine engine) {
  Sweep sweep;
  sweep.request.engine = engine;
  sweep.request.experiment = "e.toml";
  sweep.list.folder = "/results";
  sweep.elements = {{.runs = {"a", "b"}, .files = {"a.h5", "b.h5"}},
                    {.runs = {"c"}, .files = {"c.h5"}}};
  sweep.program = "/bin/isoloss";
  sweep.start = "/start here";
  sweep.make = {"verify", "e.toml", "--only"};
  sweep.judge = {"verify", "e.toml"};
  return sweep;
}

std::string ScriptOf(const Sweep& sweep, const std::string& name) {
  for (const Script& script : ScriptsOf(sweep)) {
    if (script.name == name) return script.text;
  }
  ADD_FAILURE() << "no script " << name;
  return "";
}

// What a shell makes of it is the word again.
TEST(Quoted, SurvivesAShell) {
  for (const std::string word :
       {"plain", "two words", "it's", "$(rm -rf x)", "`id`", "a\"b", "", "a;b",
        "*", "~", "back\\slash", "!x", "#x"}) {
    EXPECT_EQ(system::OutputOf(
                  {"/bin/bash", "-c", "printf %s " + Quoted(word) + "x"}),
              word + "x");
  }
}

TEST(Scripts, OfMakeKnowTheFilesOfRuns) {
  const std::string makefile = ScriptOf(SweepOf(Engine::kMake), "Makefile");
  EXPECT_THAT(makefile, HasSubstr("a.h5 b.h5 &:\n\t@sweep/element.sh 1\n"));
  EXPECT_THAT(makefile, HasSubstr("runs: \\\n  a.h5 b.h5 \\\n  c.h5\n"));
  Sweep sweep = SweepOf(Engine::kMake);
  sweep.list.folder = "/res$ults";
  EXPECT_THROW(ScriptsOf(sweep), Error);
}

TEST(Scripts, OfSlurmJudgeInTheEnd) {
  Sweep sweep = SweepOf(Engine::kSlurm);
  sweep.request.side_by_side = 5;
  sweep.request.sbatch = {"--partition=cpu"};
  EXPECT_EQ(SbatchText(sweep),
            "sbatch --parsable --array=1-2%5 "
            "--output=/results/sweep/log/element-%a.txt "
            "/results/sweep/array.sh\n"
            "sbatch --parsable --output=/results/sweep/log/judge.txt "
            "--dependency=afterany:JOB1 /results/sweep/judge.sh");
  const std::string array = ScriptOf(sweep, "array.sh");
  EXPECT_THAT(array, HasSubstr("#SBATCH --partition=cpu\n"));
  EXPECT_THAT(array, HasSubstr("cd '/start here' || exit 3\n"));
  EXPECT_THAT(array, HasSubstr("LAUNCHER='srun --mpi=none'\n"));
  EXPECT_THAT(array, Not(HasSubstr("--spread-job")));
  sweep.request.processes = 2;
  EXPECT_THAT(ScriptOf(sweep, "array.sh"),
              HasSubstr("#SBATCH --nodes=1-2\n#SBATCH --spread-job\n"));
  EXPECT_THAT(ScriptOf(sweep, "array.sh"), HasSubstr("srun --mpi=pmi2"));
}

TEST(Scripts, AreWhatBashReads) {
  for (const Engine engine : {Engine::kSlurm, Engine::kLocal}) {
    for (const Script& script : ScriptsOf(SweepOf(engine))) {
      EXPECT_EQ(system::OutputOf({"/bin/bash", "-n", "-c", script.text}), "")
          << script.name;
      const std::atomic<bool> never{false};
      EXPECT_EQ(system::RunChild({"/bin/bash", "-n", "-c", script.text}, {},
                                 std::chrono::seconds(10), never)
                    .exit_code,
                0)
          << script.name;
    }
  }
}

TEST(Scripts, TheJobsIsTheFileOfTheSources) {
  EXPECT_EQ(kJobScript,
            ReadTextFile(ISOLOSS_SOURCE_DIR "/lib/isoloss/sweeps/job.sh", ""));
}

}  // namespace
}  // namespace isoloss::sweeps::sweep_scripts_test
