"""The event loop of a runtime, and running code on it from anywhere.

=================== ==============================================================================
``loop_handle``     LoopHandle, BackgroundLoop: runs code on the runtime's loop from any thread
``alarms``          Alarms: functions that are called at times of the clock on the wall
``timers``          Timers: one timer of the loop for all timeouts of the same length
``threads``         runs synchronous code in threads
``resource_task``   ResourceTask: holds a resource open in one task, for use from any other
``cancellation``    waits for what must be finished, although the waiting task is cancelled
=================== ==============================================================================
"""
