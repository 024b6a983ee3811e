#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include <map>
#include <string>

#include "isoloss/base/error.h"
#include "isoloss/transport/launch.h"
#include "isoloss/transport/transport.h"

namespace isoloss::transport::registry_test {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

/// Environment variables for the time of a test.
class Environment {
 public:
  explicit Environment(std::map<std::string, std::string> variables)
      : variables_(std::move(variables)) {
    for (const auto& [name, value] : variables_) {
      setenv(name.c_str(), value.c_str(), 1);
    }
  }
  ~Environment() {
    for (const auto& [name, value] : variables_) unsetenv(name.c_str());
  }
  Environment(const Environment&) = delete;
  Environment& operator=(const Environment&) = delete;

 private:
  std::map<std::string, std::string> variables_;
};

std::string ConfigErrorOf(const std::string& name,
                          const TransportOptions& options) {
  Executor executor(1);
  try {
    MakeTransport(name, options, executor);
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kConfig);
    return error.what();
  }
  return "no error";
}

TEST(Transports, AreThoseOfTheList) {
  EXPECT_THAT(TransportNames(),
              ElementsAre("loop", "threads", "shuffled", "mpi"));
}

TEST(Transports, RefuseAnUnknownName) {
  EXPECT_THAT(ConfigErrorOf("thread", {.ranks = 2}),
              HasSubstr("Did you mean `threads`?"));
}

TEST(Transports, RefuseImpossibleOptions) {
  EXPECT_THAT(ConfigErrorOf("loop", {.ranks = 0}), HasSubstr("0 ranks"));
  EXPECT_THAT(ConfigErrorOf("loop", {.ranks = 5000}), HasSubstr("1 to 1024"));
  EXPECT_THAT(ConfigErrorOf("loop", {.ranks = 1, .deadline_seconds = 0}),
              HasSubstr("deadline is 0 s"));
}

TEST(Transports, OfOneProcessRefuseToRunInSeveral) {
  const Environment environment(
      {{"OMPI_COMM_WORLD_SIZE", "4"}, {"OMPI_COMM_WORLD_RANK", "1"}});

  for (const char* name : {"loop", "threads", "shuffled"}) {
    EXPECT_THAT(ConfigErrorOf(name, {.ranks = 4}),
                HasSubstr("Open MPI started 4 processes"));
  }
}

TEST(Transports, OfSeveralProcessesNeedALauncher) {
  EXPECT_THAT(ConfigErrorOf("mpi", {.ranks = 4}), HasSubstr("mpirun -n"));
}

TEST(Transports, RefuseRanksThatDoNotDivideEvenly) {
  const Environment environment({{"PMI_SIZE", "4"}, {"PMI_RANK", "1"}});

  EXPECT_THAT(ConfigErrorOf("mpi", {.ranks = 6}),
              HasSubstr("6 ranks do not divide evenly among 4 processes"));
}

TEST(Transports, SayWhichPackageAMissingModuleNeeds) {
  const Environment environment({{"PMI_SIZE", "2"},
                                 {"PMI_RANK", "1"},
                                 {"ISOLOSS_MPI_MODULE_DIR", "/nowhere"}});

  EXPECT_THAT(ConfigErrorOf("mpi", {.ranks = 2}),
              HasSubstr("/nowhere/isoloss_mpi_mpich.so is not there. Install "
                        "libmpich-dev"));
}

TEST(Transports, RefuseAnUnknownMpiLibrary) {
  const Environment environment(
      {{"PMI_SIZE", "2"}, {"PMI_RANK", "1"}, {"ISOLOSS_MPI", "mvapich"}});

  EXPECT_THAT(ConfigErrorOf("mpi", {.ranks = 2}), HasSubstr("`mvapich`"));
}

TEST(Launch, IsSeenInTheEnvironment) {
  EXPECT_EQ(DetectLaunch().processes, 1);
  EXPECT_EQ(DetectLaunch().launcher, "");
  EXPECT_FALSE(JobHasPeers());

  const Environment mpich({{"PMI_SIZE", "3"}, {"PMI_RANK", "2"}});
  EXPECT_EQ(DetectLaunch().processes, 3);
  EXPECT_EQ(DetectLaunch().process, 2);
  EXPECT_EQ(DetectLaunch().launcher, "MPICH");
}

TEST(Operation, DescribesItself) {
  EXPECT_EQ(Describe({OpKind::kVote}), "vote");
  EXPECT_EQ(Describe({OpKind::kDispatch, 2}), "dispatch, MoE layer 2");
  EXPECT_EQ(Describe({OpKind::kCombineGradient, 0, 1}),
            "combine gradient, MoE layer 0, hop 1");
}

}  // namespace
}  // namespace isoloss::transport::registry_test
