// On a device every row-wise operation has the bits of its scalar definition.
#include "isoloss/device/row_forms.h"

#include <gtest/gtest.h>

#include <string>
#include <tuple>
#include <vector>

#include "executors.h"
#include "isoloss/kernels/rowwise.h"
#include "support/rowwise_operations.h"

namespace isoloss::device::row_forms_test {
namespace {

using kernels::rowwise_operations::Operation;

std::string Name(
    const testing::TestParamInfo<std::tuple<Operation, NamedExecutor>>& test) {
  return std::get<0>(test.param).name + ("_" + std::get<1>(test.param).name);
}

/// Returns the operations that take an executor.
std::vector<Operation> Operations() {
  std::vector<Operation> operations = kernels::rowwise_operations::All();
  std::erase_if(operations, [](const Operation& operation) {
    return operation.name == std::string("RowDot");
  });
  return operations;
}

class RowFormsTest
    : public testing::TestWithParam<std::tuple<Operation, NamedExecutor>> {};

TEST_P(RowFormsTest, HaveTheBitsOfTheDefinition) {
  const auto& [operation, device] = GetParam();
  for (const size_t cols : {1, 15, 16, 17, 33, 100, 256, 520}) {
    for (const size_t rows : {0, 1, 33, 70}) {
      kernels::rowwise_operations::ExpectDefinedBits(operation, rows, cols,
                                                     *device.executor);
      if (HasFatalFailure()) return;
    }
  }
}

/// Blocks keep rows in their shared memory, but not such wide ones.
TEST_P(RowFormsTest, HaveTheBitsOfTheDefinitionInWideRows) {
  const auto& [operation, device] = GetParam();
  for (const size_t cols : {5200, 11001, 11008}) {
    kernels::rowwise_operations::ExpectDefinedBits(operation, 34, cols,
                                                   *device.executor);
  }
}

INSTANTIATE_TEST_SUITE_P(Devices, RowFormsTest,
                         testing::Combine(testing::ValuesIn(Operations()),
                                          testing::ValuesIn(DeviceExecutors())),
                         Name);

}  // namespace
}  // namespace isoloss::device::row_forms_test
