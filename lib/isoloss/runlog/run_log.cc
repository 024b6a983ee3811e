#include "isoloss/runlog/run_log.h"

#include "isoloss/runlog/schema.h"

namespace isoloss::runlog {

void StepColumns::Append(const StepRow& row) {
  VisitSteps([](const Field&, auto& column,
                const auto& value) { column.push_back(value); },
             *this, row);
}

}  // namespace isoloss::runlog
