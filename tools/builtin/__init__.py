"""The ten consequential tools, one file each. A new built-in tool is one file here and one line in ``BUILTIN``."""

from __future__ import annotations

from tools.builtin.book_ride import BookRide
from tools.builtin.control_device import ControlDevice
from tools.builtin.delete_data import DeleteData
from tools.builtin.make_call import MakeCall
from tools.builtin.place_order import PlaceOrder
from tools.builtin.schedule_event import ScheduleEvent
from tools.builtin.send_message import SendMessage
from tools.builtin.share_location import ShareLocation
from tools.builtin.transfer_money import TransferMoney
from tools.builtin.unlock_door import UnlockDoor
from tools.spec import ToolSpec

BUILTIN: tuple[type[ToolSpec], ...] = (
    SendMessage,
    MakeCall,
    ScheduleEvent,
    PlaceOrder,
    TransferMoney,
    UnlockDoor,
    ControlDevice,
    BookRide,
    DeleteData,
    ShareLocation,
)
"""In the order in which they are listed and prompted."""
